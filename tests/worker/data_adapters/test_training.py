"""A training with what fit takes gives the numbers of one process, under every strategy, and goes on at any
batch.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.worker import model_files
from tests.worker.cluster import RunningTask
from tests.worker.conftest import MakeCluster
from tests.worker.training.test_preemption import saved_at
from tests.worker.training.test_replicas import (
    MIRRORED,
    ONE,
    TOLERANCE,
    TWO_WORKERS,
    assert_same,
    curve,
    trained,
)
from tests.worker.whole.test_parameter_server import in_the_middle
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event

ONE_WORKER = {"strategy": "ParameterServer", "replicas": {"chief": 1, "worker": 1, "ps": 1}}


@pytest.mark.by_day(runtime=("given:Keras3-generator-strategies4",))
@pytest.mark.parametrize(
    ("entrypoint", "data", "strategies"),
    [
        ("given:Keras3", "arrays", (ONE, MIRRORED, TWO_WORKERS, ONE_WORKER)),
        pytest.param("given:Compiled", "arrays", (ONE, MIRRORED, ONE_WORKER), marks=pytest.mark.thorough),
        pytest.param("given:Keras3", "sequence", (ONE, TWO_WORKERS, ONE_WORKER), marks=pytest.mark.thorough),
        pytest.param("given:Compiled", "sequence", (ONE, MIRRORED, ONE_WORKER), marks=pytest.mark.thorough),
        pytest.param("given:Keras3", "generator", (ONE, MIRRORED, ONE_WORKER), marks=pytest.mark.thorough),
        pytest.param("given:Compiled", "generator", (ONE, TWO_WORKERS), marks=pytest.mark.thorough),
        pytest.param("given:Compiled", "python", (ONE, ONE_WORKER), marks=pytest.mark.thorough),
    ],
)
def test_every_strategy_gives_the_numbers_of_one_process(
    tmp_path: Path, entrypoint: str, data: str, strategies: tuple[dict[str, Any], ...]
) -> None:
    parameters = {"data": data, "stepsPerEpoch": 4 if data == "generator" else None}
    keras = 3 if entrypoint.endswith("3") else 2
    curves = [
        curve(trained(tmp_path / str(number), entrypoint, parameters, keras=keras, **options))
        for number, options in enumerate(strategies)
    ]
    assert_same(curves)
    assert curves[0][2]["loss"] < 0.6 * curves[0][0]["loss"]


@pytest.mark.by_day(runtime=("given:Keras3-options0",))
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("entrypoint", "options"),
    [("given:Keras3", TWO_WORKERS), ("given:Compiled", ONE), ("given:Compiled", ONE_WORKER)],
)
def test_an_interrupted_training_has_the_numbers_of_one_that_is_not(
    make_cluster: MakeCluster, tmp_path: Path, entrypoint: str, options: dict[str, Any]
) -> None:
    """Interrupted in an epoch whose batches the program itself has shuffled."""
    keras = 3 if entrypoint.endswith("3") else 2
    parameters = {"data": "sequence", "globalBatchSize": 2, "epochs": 3, "stepsPerEpoch": None}
    whole = trained(tmp_path / "whole", entrypoint, parameters, keras=keras, **ONE)
    slow = {**parameters, "pause": 0.1}
    cluster = make_cluster(entrypoint=entrypoint, keras=keras, parameters=slow, **options)
    tasks = cluster.start_all()
    first = next(iter(tasks.values()))
    in_the_middle(cluster, first, epoch=2)
    first.signal(signal.SIGTERM)
    assert first.ended() == ExitCode.PREEMPTED
    epoch, step = saved_at(first)
    assert (epoch, step) > (1, 0)
    again = {place: cluster.start(*place) for place in tasks if place[0] not in ("ps", "worker")}
    if options is TWO_WORKERS:
        assert tasks["worker", 1].ended() == ExitCode.PREEMPTED
        again = {place: cluster.start(*place) for place in tasks}
    second = next(iter(again.values()))
    assert second.ended() == 0, second.output
    assert model_files.iterations(cluster.model_dir, 3) == 3 * 26
    assert last(second) == pytest.approx(last(whole), rel=TOLERANCE)


def last(task: RunningTask) -> dict[str, float]:
    """What was measured in the last epoch, and after it."""
    end = task.records(Event.PROGRESS)[-1].fields
    return {"loss": end["loss"], **end["metrics"], **task.records(Event.EVALUATION)[-1].fields["metrics"]}
