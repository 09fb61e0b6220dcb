"""The data of a later attempt goes on in the order of the one before."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.data.experimental.ops.testing import sleep

from worker.checkpoints.position import Position
from worker.context import Hooks, Loop
from worker.input.continuation import continued, left, of_worker
from worker.input.datasets import training_dataset
from worker.input.seeding import alike
from worker.parameters import TrainingParameters
from worker.reporting import Reporter

EXAMPLES, BATCH, STEPS, EPOCHS = 20, 4, 3, 9
"""An epoch of 3 steps cuts a pass of 5 batches."""
numbers = tf.data.Dataset.range(EXAMPLES)
unknown = numbers.filter(lambda number: number >= 0)


def files() -> Any:
    """Files in another order in each pass, and then their examples."""
    names = tf.data.Dataset.range(4).shuffle(4)
    return names.interleave(
        lambda name: tf.data.Dataset.range(name * 5, name * 5 + 5), cycle_length=2, num_parallel_calls=2
    )


def permuted() -> Any:
    """Shuffled by Python and by numpy."""
    order = np.random.permutation(EXAMPLES).tolist()
    random.shuffle(order)
    return tf.data.Dataset.from_tensor_slices(order)


def reordered(**options: Any) -> Any:
    """Four files, of which the first is the slowest. `options` are those of `interleave`."""

    def file(number: Any) -> Any:
        first = tf.where(number == 0, tf.constant(20_000, tf.int64), 0)  # microseconds
        return tf.data.Dataset.range(number * 5, number * 5 + 5).apply(sleep(first))

    return tf.data.Dataset.range(4).interleave(file, cycle_length=4, num_parallel_calls=4, **options)


def in_any_order(dataset: Any) -> Any:
    options = tf.data.Options()
    options.deterministic = False
    return dataset.with_options(options)


def batched(dataset: Any) -> Any:
    return dataset.batch(BATCH)


PIPELINES: dict[str, Callable[[], Any]] = {
    "not shuffled": lambda: batched(numbers),
    "shuffled": lambda: batched(numbers.shuffle(EXAMPLES)),
    "in one order": lambda: batched(numbers.shuffle(EXAMPLES, reshuffle_each_iteration=False)),
    "by a seed": lambda: batched(numbers.shuffle(EXAMPLES, seed=5)),
    "by two shuffles": lambda: batched(numbers.shuffle(EXAMPLES).shuffle(5)),
    "cached before": lambda: batched(numbers.cache().shuffle(EXAMPLES)),
    "cached after": lambda: batched(numbers.shuffle(EXAMPLES).cache()),
    "in the background": lambda: batched(
        numbers.shuffle(EXAMPLES).map(lambda number: number, num_parallel_calls=tf.data.AUTOTUNE).prefetch(2)
    ),
    "files": lambda: batched(files().shuffle(10).apply(tf.data.experimental.assert_cardinality(EXAMPLES))),
    "files of no known number": lambda: batched(files().shuffle(10)),
    "of no known size": lambda: batched(unknown.shuffle(EXAMPLES)).map(lambda batch: batch).prefetch(1),
    "without an end": lambda: batched(numbers.shuffle(EXAMPLES)).repeat().prefetch(1),
    "without an end, of no known size": lambda: batched(files().shuffle(9).repeat()),
    "batches across passes": lambda: (
        numbers.shuffle(EXAMPLES).repeat().batch(3).map(lambda batch: batch[batch >= 0])
    ),
    "shuffled across passes": lambda: batched(numbers.repeat().shuffle(7)),
    "twice in a pass": lambda: batched(numbers.repeat(2).shuffle(EXAMPLES)),
    "a smaller last batch": lambda: batched(numbers.skip(2).shuffle(EXAMPLES)),
    "no smaller last batch": lambda: unknown.skip(2).shuffle(EXAMPLES).batch(BATCH, drop_remainder=True),
    "permuted": lambda: batched(permuted()),
    "pairs": lambda: batched(numbers.shuffle(EXAMPLES)).map(lambda number: (number, {"too": number})),
    "in any order": lambda: batched(reordered(deterministic=False)),
    "in any order, by options": lambda: in_any_order(batched(reordered())),
    "a tuple of one": lambda: batched(numbers.shuffle(EXAMPLES)).map(lambda number: (number,)),
}


class Told(Reporter):
    """Keeps the notices."""

    def __init__(self) -> None:
        super().__init__("chief")
        self.notices: list[str] = []

    def notice(self, message: str) -> None:
        self.notices.append(message)


def loop_of(make: Callable[[], Any], steps: int | None = STEPS, workers: int = 1) -> Any:
    program: Any = SimpleNamespace(
        has=lambda method: method == "loss",
        train_dataset=lambda size: program.datasets.append(make()) or program.datasets[-1],
        datasets=[],
        entrypoint="train:Program",
        is_of_one_process=False,
        orders=None,
        worded=str,
    )
    return Loop(
        program=program,
        parameters=TrainingParameters(epochs=EPOCHS, steps_per_epoch=steps, global_batch_size=BATCH),
        strategy=tf.distribute.get_strategy(),
        directory=None,
        writes=True,
        count_workers=lambda: workers,
        validates=False,
        hooks=Hooks(Told()),
    )


def batches(dataset: Any, count: int) -> list[Any]:
    values = [
        tf.nest.map_structure(lambda value: value.numpy().tolist(), batch) for batch in dataset.take(count)
    ]
    assert len(values) == count
    return values


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("known", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_the_order_is_that_of_one_attempt(name: str, known: bool) -> None:
    if not known and int(PIPELINES[name]().cardinality()) == tf.data.INFINITE_CARDINALITY:
        return
    loop = loop_of(PIPELINES[name], STEPS if known else None)
    dataset, epoch_steps = training_dataset(loop)
    steps = epoch_steps or 0
    assert steps == (STEPS if known else sum(1 for _ in PIPELINES[name]()))
    whole = batches(dataset.repeat(), EPOCHS * STEPS)
    for done in (1, 2, 4, 5, 7, 17):
        np.random.seed()
        tf.random.uniform([])
        dataset, _ = training_dataset(loop)
        later = continued(loop, dataset, steps, Position(*divmod(done, steps)))
        assert batches(later, len(whole) - done) == whole[done:], done
        assert int(later.cardinality()) == tf.data.INFINITE_CARDINALITY
        assert later.element_spec == dataset.element_spec
    assert bool(loop.hooks.reporter.notices) == (name == "shuffled across passes")


def test_at_the_beginning_nothing_is_left_out() -> None:
    loop = loop_of(lambda: batched(numbers))
    dataset, steps = training_dataset(loop)
    assert continued(loop, dataset, steps, Position()) is dataset


def test_a_long_count_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.input.pass_length._PATIENCE_SECONDS", -1.0)
    loop = loop_of(lambda: batched(unknown), None)
    assert training_dataset(loop)[1] == EXAMPLES // BATCH
    (notice,) = loop.hooks.reporter.notices
    assert "train_dataset() has not ended after 20 elements" in notice
    monkeypatch.undo()
    loop = loop_of(lambda: batched(unknown), None)
    training_dataset(loop)
    assert not loop.hooks.reporter.notices


def test_only_the_dataset_is_made_alike() -> None:
    assert len({float(value) for value in _drawn()} | {float(value) for value in _drawn()}) == 6
    tf.random.set_seed(3)
    try:
        first = float(tf.random.uniform([]))
        tf.random.set_seed(3)
        alike(lambda _: numbers.shuffle(EXAMPLES), batch_size=1)
        assert float(tf.random.uniform([])) == first, "as without the dataset"
    finally:
        tf.random.set_seed(None)


def _drawn() -> list[Any]:
    alike(lambda _: numbers.shuffle(EXAMPLES), batch_size=1)
    return [random.random(), np.random.random(), tf.random.uniform([])]


def test_it_gives_signs_of_life_while_batches_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.input.continuation._SECONDS", 0.01)
    seen: list[int] = []
    slow = numbers.map(lambda number: tf.py_function(_slowly, [number], tf.int64))
    assert [int(number) for number in left(slow, 15, lambda: seen.append(1))] == list(range(15, 20))
    assert len(seen) > 5


def _slowly(number: Any) -> Any:
    import time

    time.sleep(0.05)
    return number


def test_a_coordinators_worker_leaves_out_its_share() -> None:
    loop = loop_of(lambda: batched(numbers), None, workers=2)

    def of(dataset: Any) -> Any:
        return of_worker(loop, dataset, 5, Position(2, 3))  # 13 steps, 6 for each of two

    assert batches(of(batched(numbers)), 5) == batches(batched(numbers).repeat().skip(6), 5)
    first = np.concatenate(batches(of(batched(numbers.shuffle(EXAMPLES))), 5))
    assert sorted(first) == list(range(EXAMPLES)), "in another order, and so from its beginning"
    assert batches(of(batched(numbers.repeat().shuffle(3, seed=1))), 1)
    (notice,) = loop.hooks.reporter.notices
    assert "so each worker begins with the first batch again" in notice


def test_leaving_out_ends_in_time() -> None:
    assert [int(next(iter(left(numbers, 15, seconds=limit)))) for limit in (0.0, 600.0)] == [0, 15]
