"""How batches are shared out over replicas: every example once, whatever the sizes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worker.forked_tasks import computed

SCRIPT = """
import json, sys
import tensorflow as tf
from worker.input.batch_division import distribute

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
found = []
for replicas in (2, 3, 4):
    strategy = tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(replicas)])
    for count, fill in [(24, 0), (17, 0), (17, 1), (17, 12 // replicas), (1, 1), (2, 0)]:
        data = tf.data.Dataset.range(100, 100 + count)
        rows = data.map(lambda number: {"a": tf.ones([2]) * tf.cast(number, tf.float32), "b": number})
        dataset = rows.batch(12)
        distributed = distribute(
            strategy, dataset, with_shares=bool(fill), fill=fill
        )
        steps = []
        iterator = iter(distributed.elements)
        for _ in range(2 * int(dataset.cardinality())):
            step = []

            def replica(element):
                batch, share = distributed.parts(element)
                part = (tf.constant(-1.0), tf.constant(-1, tf.int64)) if share is None else share
                return batch["a"][:, 1], batch["b"], *part[:2]

            values = strategy.run(replica, args=(next(iterator),))
            local = [strategy.experimental_local_results(value) for value in values]
            for a, b, part, examples in zip(*local):
                assert (a.numpy() == b.numpy()).all()
                step.append([b.numpy().tolist(), float(part), int(examples)])
            steps.append(step)
        found.append([replicas, count, fill, distributed.has_shares, steps])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def shared_out(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """[replicas, count, fill, has_shares, steps], each step [numbers, part, examples] of each replica."""
    script = tmp_path_factory.mktemp("shared") / "shared.py"
    script.write_text(SCRIPT)
    divisions: list[Any] = computed(script)
    return divisions


def test_every_example_once_in_its_order_and_nearly_as_many_for_each(shared_out: list[Any]) -> None:
    for replicas, count, _, has_shares, steps in shared_out:
        passed = []
        for step in steps:
            replica_numbers = [numbers[:examples] if has_shares else numbers for numbers, _, examples in step]
            assert len(replica_numbers) == replicas
            sizes = [len(numbers) for numbers in replica_numbers]
            assert max(sizes) - min(sizes) <= 1
            passed += [number for numbers in replica_numbers for number in numbers]
        # Two passes: an epoch ends where its data ends.
        assert passed == 2 * list(range(100, 100 + count))


def test_the_shares_are_those_of_the_examples(shared_out: list[Any]) -> None:
    seen = 0
    for _, _, _, has_shares, steps in shared_out:
        for step in steps if has_shares else []:
            total = sum(examples for _, _, examples in step)
            assert [part for _, part, _ in step] == pytest.approx(
                [examples / total for _, _, examples in step]
            )
            seen += 1
    assert seen > 20


def test_batches_are_filled_with_their_own_examples(shared_out: list[Any]) -> None:
    filled = 0
    for _, _, fill, has_shares, steps in shared_out:
        for step in steps if has_shares else []:
            everything = {number for numbers, _, examples in step for number in numbers[:examples]}
            for numbers, _, examples in step:
                assert len(numbers) == max(examples, fill)
                assert set(numbers) <= everything
                filled += len(numbers) > examples
    assert filled > 20
