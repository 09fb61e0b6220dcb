"""A killed task costs the steps since the newest copy in memory, and nothing is trained twice: each example
has moved its weight once for each visit.
"""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worker.cluster import RunningTask
from tests.worker.conftest import MakeCluster
from tests.worker.supervisor.test_supervisor import kill_in_its_pod
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event

EXAMPLES, BATCH, EPOCHS = 600, 4, 2
STEPS = EXAMPLES // BATCH
COLLECTIVE = {"strategy": "MultiWorkerMirrored", "replicas": {"worker": 2}}
COORDINATED = {"strategy": "ParameterServer", "replicas": {"chief": 1, "worker": 2, "ps": 1}}
ONE_WORKER = {"strategy": "ParameterServer", "replicas": {"chief": 1, "worker": 1, "ps": 1}}
ALONE = {"strategy": "OneDevice", "replicas": {"chief": 1}}


class Run:
    """Two epochs of 15 s, with no model directory at all."""

    def __init__(self, make_cluster: MakeCluster, directory: Path, entrypoint: str, **options: Any) -> None:
        self.weights = directory / "weights"
        self.weights.mkdir()
        parameters = {
            "epochs": EPOCHS,
            "stepsPerEpoch": STEPS,
            "globalBatchSize": BATCH,
            "stepsPerExecution": 1,
            "examples": EXAMPLES,
            "weights": str(self.weights),
            "pause": 100,
            "seed": options.pop("seed", None),
        }
        self.cluster = make_cluster(
            entrypoint=f"kept:{entrypoint}",
            parameters=parameters,
            model_dir=None,
            copies=directory / "copies",
            restarts_in_place=3,
            **options,
        )
        self.tasks = self.cluster.start_all()

    @property
    def first(self) -> RunningTask:
        return next(iter(self.tasks.values()))

    def copied(self, role: str, index: int) -> bool:
        return any((self.cluster.copies_dir(role, index) / "backup").glob("ckpt-*.index"))

    def lose_pod(self, role: str, index: int) -> None:
        """Its memory is lost with it."""
        self.tasks[role, index].kill()
        shutil.rmtree(self.cluster.copies_dir(role, index))
        self.tasks[role, index] = self.cluster.start(role, index)

    def went_on_at(self) -> list[tuple[int, int]]:
        """The epochs, from 0, and steps at which it has gone on, as the first task says."""
        notices = [record.fields["message"] for record in self.first.records(Event.NOTICE)]
        matches = [re.search(r"goes on at step (\d+) of epoch (\d+), from a copy", each) for each in notices]
        return [(int(each[2]) - 1, int(each[1])) for each in matches if each]

    def took_each_step_once(self) -> None:
        """Each has moved the weights by one, all together. Which examples a worker of ParameterServer has
        taken is not known.
        """
        self.all_done()
        weights = np.load(self.weights / f"chief-0-{EPOCHS}.npy")
        np.testing.assert_allclose(weights.sum(), -EPOCHS * STEPS, atol=1e-3)

    def visited_each_example_once_in_an_epoch(self) -> None:
        self.all_done()
        assert list(self.weights.glob(f"*-{EPOCHS}.npy"))
        for path in self.weights.glob(f"*-{EPOCHS}.npy"):
            np.testing.assert_allclose(np.load(path), -EPOCHS / BATCH, atol=1e-5)

    def all_done(self) -> None:
        assert [task.ended() for task in self.tasks.values()] == [0] * len(self.tasks), "\n".join(
            task.output for task in self.tasks.values()
        )


thorough = pytest.mark.thorough
nightly = [thorough, pytest.mark.nightly]


@pytest.mark.by_day(runtime=("the first worker",))
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("entrypoint", "victim", "lost"),
    [
        pytest.param("Loop", ("worker", 1), "process", marks=thorough, id="a worker"),
        pytest.param("Keras3", ("worker", 0), "pod", marks=nightly, id="the pod of the first worker"),
        pytest.param("Keras3", ("worker", 0), "process", id="the first worker"),
        pytest.param("Loop", ("worker", 1), "pod", marks=thorough, id="the pod of a worker"),
    ],
)
def test_a_lost_task_of_a_collective_costs_seconds(
    make_cluster: MakeCluster, tmp_path: Path, entrypoint: str, victim: tuple[str, int], lost: str
) -> None:
    run = Run(make_cluster, tmp_path, entrypoint, **COLLECTIVE)
    run.first.eventually(lambda: all(run.copied(*task) for task in run.tasks), "all tasks have a copy")
    if lost == "process":
        kill_in_its_pod(run.tasks[victim])
    else:
        run.lose_pod(*victim)
    run.visited_each_example_once_in_an_epoch()
    assert run.went_on_at()


@pytest.mark.nightly
@thorough
def test_one_task_alone(make_cluster: MakeCluster, tmp_path: Path) -> None:
    run = Run(make_cluster, tmp_path, "Fit", **ALONE)
    run.first.eventually(lambda: run.copied("chief", 0), "there is a copy")
    kill_in_its_pod(run.first)
    run.visited_each_example_once_in_an_epoch()
    assert run.went_on_at()


@pytest.mark.nightly
@thorough
def test_a_drained_pod_costs_no_step(make_cluster: MakeCluster, tmp_path: Path) -> None:
    """The others stop after the same step, and wait for the next pod."""
    run = Run(make_cluster, tmp_path, "Keras3", **COLLECTIVE)
    run.first.eventually(lambda: all(run.copied(*task) for task in run.tasks), "all tasks have a copy")
    run.tasks["worker", 1].signal(signal.SIGTERM)
    assert run.tasks["worker", 1].ended() == ExitCode.PREEMPTED
    (last,) = (run.cluster.copies_dir("worker", 1) / "backup").glob("ckpt-*.index")
    shutil.rmtree(run.cluster.copies_dir("worker", 1))
    run.tasks["worker", 1] = run.cluster.start("worker", 1)
    run.visited_each_example_once_in_an_epoch()
    assert [f"ckpt-{epoch}-{step}.index" for epoch, step in run.went_on_at()] == [last.name]


@pytest.mark.by_day(runtime=("the chief", "a ps: its chief has the copy"))
@pytest.mark.parametrize(
    ("entrypoint", "victim", "lost"),
    [
        pytest.param("Loop", ("ps", 0), "process", marks=thorough, id="a ps: its chief has the copy"),
        pytest.param("Keras3", ("ps", 0), "pod", marks=thorough, id="the pod of a ps"),
        pytest.param("Fit", ("chief", 0), "process", marks=thorough, id="the chief"),
        pytest.param("Keras3", ("chief", 0), "pod", marks=thorough, id="the chief's pod: a ps has the copy"),
    ],
)
def test_parameter_servers(
    make_cluster: MakeCluster, tmp_path: Path, entrypoint: str, victim: tuple[str, int], lost: str
) -> None:
    run = Run(make_cluster, tmp_path, entrypoint, **COORDINATED)
    run.first.eventually(lambda: run.copied("chief", 0) and run.copied("ps", 0), "both have a copy")
    if lost == "process":
        kill_in_its_pod(run.tasks[victim])
    else:
        run.lose_pod(*victim)
    run.took_each_step_once()
    assert run.went_on_at()


def test_the_only_worker_of_parameter_servers_is_lost_and_no_batch_is_taken_twice(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    run = Run(make_cluster, tmp_path, "Keras3", seed=5, **ONE_WORKER)
    run.first.eventually(lambda: run.copied("chief", 0), "there is a copy")
    kill_in_its_pod(run.tasks["worker", 0])
    run.visited_each_example_once_in_an_epoch()
    assert run.went_on_at()
