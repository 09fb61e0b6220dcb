"""The batch size: given for all replicas together or for each, and not what the program makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worker.conftest import MakeCluster
from tests.worker.forked_tasks import computed
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event

PER_REPLICA = {"epochs": 1, "stepsPerEpoch": 4, "globalBatchSize": None, "batchSizePerReplica": 8}
MIRRORED = {
    "strategy": "Mirrored",
    "replicas": {"chief": 1, "evaluator": 1},
    "strategy_options": {"logicalCpus": 2},
}
COORDINATED = {"strategy": "ParameterServer", "replicas": {"chief": 1, "worker": 2, "ps": 1}}
TOGETHER = {"strategy": "MultiWorkerMirrored", "replicas": {"worker": 2}}


@pytest.mark.by_day("ParameterServer, loop", runtime=())
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("options", "entrypoint", "size"),
    [
        (MIRRORED, "sized:Sized", 16),
        (COORDINATED, "sized:ByLoss", 8),
        pytest.param(TOGETHER, "sized:ByLoss", 16, marks=pytest.mark.thorough),
        pytest.param(COORDINATED, "sized:Sized", 8, marks=pytest.mark.thorough),
    ],
    ids=["Mirrored, fit", "ParameterServer, loop", "MultiWorkerMirrored, loop", "ParameterServer, fit"],
)
def test_it_is_multiplied_by_the_replicas_of_a_step(
    make_cluster: MakeCluster, options: dict[str, Any], entrypoint: str, size: int
) -> None:
    tasks = make_cluster(**options, entrypoint=entrypoint, parameters=PER_REPLICA).start_all()
    assert {task.ended() for task in tasks.values()} == {0}
    (role, *_), first = next(iter(tasks.items()))
    assert f"trains with batches of {size}" in first.lines, role
    if ("evaluator", 0) in tasks:
        assert "evaluates with batches of 8" in tasks["evaluator", 0].lines, "it has one replica"
    else:
        assert f"evaluates with batches of {size}" in first.lines


ONE = {"strategy": "OneDevice", "replicas": {"chief": 1}}


@pytest.mark.parametrize("drops", [True, False], ids=["static", "as batch() says"])
def test_another_size_is_refused_where_the_loss_is_divided_by_what_was_asked_for(
    make_cluster: MakeCluster, drops: bool
) -> None:
    parameters = {"batch": 5, "drops": drops}
    chief = make_cluster(**ONE, entrypoint="sized:ByLoss", parameters=parameters).start("chief")
    assert chief.ended() == ExitCode.PROGRAM_ERROR
    assert chief.until(Event.FAILED).fields["message"] == (
        "sized:ByLoss: train_dataset(20) returned batches of 5, not of 20, by which what loss() gives is "
        "divided; batch by the batch_size that it is given, or set globalBatchSize: 5"
    )
    assert not chief.records(Event.TRAINING)


@pytest.mark.thorough
def test_another_size_is_told_where_keras_takes_the_mean_over_what_comes(make_cluster: MakeCluster) -> None:
    parameters = {**PER_REPLICA, "batch": 6}
    replicas = {"chief": 1}
    chief = make_cluster(
        **{**MIRRORED, "replicas": replicas}, entrypoint="sized:Sized", parameters=parameters
    ).start("chief")
    assert chief.ended() == 0
    (notice,) = [record.fields["message"] for record in chief.records(Event.NOTICE)]
    assert "train_dataset(16) returned batches of 6, not of 16;" in notice
    assert notice.endswith("set batchSizePerReplica: 3")


_SIZES = """
import json
import tensorflow as tf
from worker.input.batch_size import batch_size

numbers = tf.data.Dataset.range(100)
batched = numbers.batch(7)

@tf.function
def on_a_worker():
    sizes.append(batch_size(numbers.batch(5).repeat()))

sizes = [
    batch_size(made)
    for made in (
        batched,
        numbers.batch(7, drop_remainder=True).map(tf.abs),
        numbers.batch(7, num_parallel_calls=2).shuffle(3).repeat().prefetch(1),
        numbers.padded_batch(7).take(3).skip(1).cache().filter(lambda batch: True).ignore_errors(),
        batched.shard(2, 0).with_options(tf.data.Options()),
        batched.apply(tf.data.experimental.assert_cardinality(15)),
        numbers.take(3).batch(7),
        batched.map(lambda batch: tf.concat([batch, batch], 0)),
        batched.unbatch(),
        batched.rebatch(3),
        tf.data.Dataset.zip((batched, batched)),
    )
]
on_a_worker()
print(json.dumps(sizes))
"""


def test_what_a_dataset_tells() -> None:
    assert computed(_SIZES) == [7, 7, 7, 7, 7, 7, 7, None, None, None, None, 5]
