"""A program's own `test_step`: each example counts once, whichever replica or worker has it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worker.conftest import MakeCluster
from worker.contract.records import Event

CLUSTERS: dict[str, dict[str, Any]] = {
    "Mirrored": {"replicas": {"chief": 1}, "strategy_options": {"logicalCpus": 4}},
    "MultiWorkerMirrored": {"replicas": {"worker": 2}},
    "ParameterServer": {"replicas": {"chief": 1, "worker": 2, "ps": 1}},
    "OneDevice": {"replicas": {"chief": 1, "evaluator": 1}},
}
SCORES = {"squares": sum(x * x for x in range(21)) / 21, "double": 20.0}


@pytest.mark.by_day(
    "ParameterServer-judged:Shuffled-3-dict",
    runtime=("MultiWorkerMirrored-judged:Shuffled-3-dict",),
)
@pytest.mark.parametrize(
    ("strategy", "entrypoint", "keras", "returns"),
    [
        ("Mirrored", "judged:Judged", 3, "dict"),
        ("Mirrored", "judged:Shuffled", 3, "dict"),
        ("MultiWorkerMirrored", "judged:Shuffled", 3, "dict"),
        ("ParameterServer", "judged:Shuffled", 3, "dict"),
        ("Mirrored", "judged:Compiled", 2, "none"),
        ("MultiWorkerMirrored", "judged:Judged", 2, "dict"),
        ("MultiWorkerMirrored", "judged:Compiled", 3, "none"),
        ("ParameterServer", "judged:Judged", 3, "dict"),
        ("ParameterServer", "judged:Judged", 2, "none"),
        ("ParameterServer", "judged:Compiled", 2, "dict"),
        ("OneDevice", "judged:Judged", 3, "none"),
    ],
)
def test_each_example_counts_once(
    make_cluster: MakeCluster, strategy: str, entrypoint: str, keras: int, returns: str
) -> None:
    parameters = {"epochs": 2, "stepsPerEpoch": 3, "globalBatchSize": 4, "keras": keras, "returns": returns}
    cluster = make_cluster(
        **CLUSTERS[strategy], strategy=strategy, entrypoint=entrypoint, parameters=parameters
    )
    tasks = cluster.start_all()
    assert {task.ended() for task in tasks.values()} == {0}
    scores = [
        record.fields["metrics"] for task in tasks.values() for record in task.records(Event.EVALUATION)
    ]
    expected = SCORES if returns == "dict" else {"squares": SCORES["squares"]}
    assert scores == [pytest.approx(expected)] * 2
    # train_step() does not update what test_step() does. (A compiled model shows all, as in Keras.)
    progress = [record for task in tasks.values() for record in task.records(Event.PROGRESS)]
    assert progress
    by_step = not entrypoint.endswith("Compiled")
    assert not (by_step and any("squares" in record.fields["metrics"] for record in progress))
