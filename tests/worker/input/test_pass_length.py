"""Interrupted in the middle of an epoch, a run trains the examples that are left, and each once in a pass.

The loss of an epoch is the mean of the squares of the examples' numbers.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.worker.cluster import Cluster, RunningTask
from tests.worker.conftest import MakeCluster
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event
from worker.contract.task_names import DATA_WORKER, DISPATCHER

EXAMPLES, BATCH, EPOCHS = 240, 20, 4
ALL = range(EXAMPLES)
DEVICES = {"strategy_options": {"logicalCpus": 2}}
ONE = {"strategy": "OneDevice", "replicas": {"chief": 1}}
MIRRORED = {"strategy": "Mirrored", "replicas": {"chief": 1}, **DEVICES}
CENTRAL = {"strategy": "CentralStorage", "replicas": {"chief": 1}, **DEVICES}
WORKERS = {"strategy": "MultiWorkerMirrored", "replicas": {"worker": 2}}
SERVED = {"strategy": "OneDevice", "replicas": {"chief": 1, DISPATCHER: 1, DATA_WORKER: 1}}
SERVERS = {"strategy": "ParameterServer", "replicas": {"chief": 1, "worker": 2, "ps": 1}}
SERVER = {"strategy": "ParameterServer", "replicas": {"chief": 1, "worker": 1, "ps": 1}}
thorough = pytest.mark.thorough


def served(options: dict[str, Any]) -> dict[str, Any]:
    """Adds three data workers."""
    return {**options, "replicas": {**options["replicas"], DISPATCHER: 1, DATA_WORKER: 3}}


nightly = [thorough, pytest.mark.nightly]


def squares(numbers: Any) -> float:
    return float(sum((number / 1000.0) ** 2 for number in numbers))


def interrupted(
    make_cluster: MakeCluster,
    folder: Path,
    options: dict[str, Any],
    entrypoint: str,
    parameters: dict[str, Any],
) -> dict[int, tuple[float, int]]:
    """Trains with a SIGTERM in the second epoch and another in the third. Returns the loss of each epoch, and
    its number of steps.
    """
    for number in range(4):
        lines = "".join(f"{example}\n" for example in ALL if example % 4 == number)
        (folder / f"{number}.txt").write_text(lines)
    cluster = make_cluster(
        entrypoint=f"positions:{entrypoint}",
        parameters={
            "epochs": EPOCHS,
            "stepsPerEpoch": None,
            "stepsPerExecution": 1,
            "globalBatchSize": BATCH,
            "examples": EXAMPLES,
            "folder": str(folder),
            "wait": 0.25,
            **parameters,
        },
        **{"starting_deadline_seconds": 170, "stall_seconds": 170, **options},
    )
    ends: dict[int, tuple[float, int]] = {}
    for epoch in (2, 3, 0):
        trains = attempt(cluster, epoch)
        for record in trains.records(Event.PROGRESS):
            if record.fields["epoch_end"]:
                ends[record.fields["epoch"]] = record.fields["loss"], record.fields["step"]
        if epoch:
            saved = [each.fields["message"] for each in trains.records(Event.NOTICE)]
            # A coordinator may have scheduled the rest of the epoch.
            place = "step" if options not in (SERVER, SERVERS) else ""
            assert any(f"checkpoint saved at {place}" in message for message in saved), saved
    assert sorted(ends) == list(range(1, EPOCHS + 1))
    return ends


def attempt(cluster: Cluster, epoch: int) -> RunningTask:
    """Lets the run train up to the middle of `epoch`, 0 for the end. Returns the task that writes."""
    tasks = cluster.start_all()
    first = tasks.get(("chief", 0)) or tasks["worker", 0]
    if epoch:
        first.eventually(
            lambda: any(
                record.fields["epoch"] == epoch and not record.fields["epoch_end"]
                for record in first.records(Event.PROGRESS)
            ),
            f"the middle of epoch {epoch}",
        )
        for task in tasks.values():
            task.signal(signal.SIGTERM)
    code = ExitCode.PREEMPTED if epoch else 0
    assert {task.ended() for task in tasks.values()} == {code}, first.output
    return first


@pytest.mark.by_day(runtime=("workers",))
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "entrypoint", "parameters", "numbers"),
    [
        pytest.param(WORKERS, "Looped", {"data": "shuffled"}, ALL, id="workers"),
        pytest.param(
            {**WORKERS, "strategy_options": {"autoShard": "FILE"}},
            "Keras3",
            {"data": "lines"},
            ALL,
            id="files",
            marks=thorough,
        ),
        pytest.param(
            ONE,
            "Looped",
            {"data": "shuffled", "stepsPerExecution": 2, "wait": 0.5},
            ALL,
            id="one",
            marks=nightly,
        ),
        pytest.param(
            MIRRORED,
            "Keras3",
            {"data": "filtered"},
            [number for number in ALL if number % 10 != 3],
            id="filtered",
            marks=thorough,
        ),
        pytest.param(CENTRAL, "Looped", {"examples": 230}, range(230), id="uneven", marks=nightly),
        pytest.param(MIRRORED, "Stepped", {"data": "shuffled"}, ALL, id="own step", marks=thorough),
        pytest.param(WORKERS, "Keras3", {"data": "lines"}, ALL, id="auto", marks=nightly),
        # Batches of one size: what such a step returns counts once, however small its batch is.
        pytest.param(WORKERS, "Stepped", {"data": "shuffled"}, ALL, id="own step of workers", marks=nightly),
        pytest.param(MIRRORED, "Compiled", {"data": "shuffled"}, ALL, id="Keras 2", marks=thorough),
        pytest.param(SERVED, "Looped", {}, ALL, id="served", marks=thorough),
        pytest.param(
            served(MIRRORED), "Keras3", {"data": "shuffled"}, ALL, id="served by three", marks=nightly
        ),
        pytest.param(
            served(ONE),
            "Compiled",
            {"examples": 230, "data": "paired"},
            range(230),
            id="served unevenly",
            marks=thorough,
        ),
        pytest.param(
            served(WORKERS), "Keras3", {"data": "lines"}, ALL, id="served to workers", marks=thorough
        ),
        pytest.param(
            served(WORKERS),
            "Stepped",
            {"data": "repeated", "stepsPerEpoch": 12},
            ALL,
            id="served without an end",
            marks=thorough,
        ),
        pytest.param(WORKERS, "Keras3", {"data": "reordered"}, ALL, id="in any order", marks=nightly),
        pytest.param(
            SERVER,
            "Keras3",
            {"wait": 0, "pause": 500},
            ALL,
            id="one coordinated worker",
            marks=thorough,
        ),
    ],
)
def test_each_epoch_has_each_example_once(
    make_cluster: MakeCluster,
    tmp_path: Path,
    options: dict[str, Any],
    entrypoint: str,
    parameters: dict[str, Any],
    numbers: Any,
) -> None:
    ends = interrupted(make_cluster, tmp_path, options, entrypoint, parameters)
    due = pytest.approx(squares(numbers) / len(numbers), rel=1e-5)
    assert {epoch: loss for epoch, (loss, _) in ends.items()} == dict.fromkeys(ends, due)
    assert {steps for _, steps in ends.values()} == {-(-len(numbers) // BATCH)}


@pytest.mark.nightly
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        pytest.param(ONE, {"data": "repeated", "stepsPerEpoch": 9}, id="repeated"),
        pytest.param(WORKERS, {"data": "shuffled", "stepsPerEpoch": 9}, id="cut"),
        pytest.param(WORKERS, {"data": "own", "stepsPerEpoch": 12}, id="each its own"),
    ],
)
def test_passes_that_are_no_epochs_go_on(
    make_cluster: MakeCluster, tmp_path: Path, options: dict[str, Any], parameters: dict[str, Any]
) -> None:
    """4 epochs of 9 steps are 3 passes; 4 of 12, of which each task takes halves, are 2 for each task."""
    ends = interrupted(make_cluster, tmp_path, options, "Looped", parameters)
    trained = sum(loss * steps * BATCH for loss, steps in ends.values())
    passes = sum(steps for _, steps in ends.values()) * BATCH / EXAMPLES
    assert trained == pytest.approx(passes * squares(ALL), rel=1e-5)


@pytest.mark.nightly
@pytest.mark.thorough
def test_coordinated_workers_go_on_about_there(make_cluster: MakeCluster, tmp_path: Path) -> None:
    """Each worker reads the data for itself: after 4 epochs of two workers, each has read it about twice."""
    ends = interrupted(make_cluster, tmp_path, SERVERS, "Looped", {"wait": 0, "pause": 500})
    trained = sum(loss * steps * BATCH for loss, steps in ends.values())
    assert trained == pytest.approx(EPOCHS * squares(ALL), rel=0.3)
