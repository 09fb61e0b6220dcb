"""SIGTERM in the middle of an epoch: the run resumes at that very step."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from typing import Any

import pytest

from tests.worker import model_files
from tests.worker.cluster import Cluster, RunningTask
from tests.worker.conftest import MakeCluster
from tests.worker.whole.test_parameter_server import in_the_middle
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event

EPOCHS, STEPS = 3, 60
SLOW = {"epochs": EPOCHS, "stepsPerEpoch": STEPS, "waitMilliseconds": 50}
COLLECTIVE = {"strategy": "MultiWorkerMirrored", "replicas": {"worker": 2}}

pytestmark = pytest.mark.nightly


def saved_at(task: RunningTask) -> tuple[int, int]:
    """The epoch, from 1, that it is to go on in, and how many steps of it were done.

    None of the next one, where a busy machine brings the signal only when an epoch has ended.
    """
    for notice in task.records(Event.NOTICE):
        if match := re.search(r"saved at step (\d+) of epoch (\d+)", notice.fields["message"]):
            return int(match[2]), int(match[1])
        if match := re.search(r"saved at epoch (\d+)", notice.fields["message"]):
            return int(match[1]) + 1, 0
    raise AssertionError(task.output)


def goes_on_there(cluster: Cluster, first: RunningTask, second: RunningTask) -> None:
    """No step is missing or done twice: the optimizer has counted them."""
    epoch, step = saved_at(first)
    assert second.until(Event.TRAINING).fields["initial_epoch"] == epoch - 1
    ends = {
        record.fields["epoch"]: record.fields["step"]
        for record in second.records(Event.PROGRESS)
        if record.fields["epoch_end"]
    }
    assert ends == dict.fromkeys(range(epoch, EPOCHS + 1), STEPS)
    assert 0 <= step < STEPS
    assert model_files.iterations(cluster.model_dir, EPOCHS) == EPOCHS * STEPS
    assert not list((cluster.model_dir / "backup").glob("ckpt-*")), "the next epoch's takes its place"


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ["OneDevice", "Mirrored", "CentralStorage"])
@pytest.mark.parametrize("parameters", [{}, {"stepsPerExecution": 5}], ids=["single", "packed"])
def test_one_task_goes_on_at_the_step(
    make_cluster: MakeCluster, strategy: str, parameters: Mapping[str, Any]
) -> None:
    cluster = make_cluster(strategy=strategy, replicas={"chief": 1}, parameters={**SLOW, **parameters})
    first = cluster.start("chief")
    in_the_middle(cluster, first, epoch=2)
    first.signal(signal.SIGTERM)
    assert first.ended() == ExitCode.PREEMPTED
    assert not first.records(Event.FAILED)
    second = cluster.start("chief")
    assert second.ended() == 0
    goes_on_there(cluster, first, second)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("entrypoint", "signalled"),
    [("tiny:Tiny", [0]), ("tiny:Tiny", [1]), ("tiny:Loop", [1]), ("tiny:Loop", [0, 1])],
    ids=["fit-first", "fit-second", "loop-second", "loop-both"],
)
def test_all_tasks_of_a_collective_leave_after_the_same_step(
    make_cluster: MakeCluster, entrypoint: str, signalled: list[int]
) -> None:
    cluster = make_cluster(**COLLECTIVE, entrypoint=entrypoint, parameters=SLOW)
    tasks = [cluster.start("worker", index) for index in (0, 1)]
    in_the_middle(cluster, tasks[0], epoch=2)
    for index in signalled:
        tasks[index].signal(signal.SIGTERM)
    assert [task.ended() for task in tasks] == [ExitCode.PREEMPTED, ExitCode.PREEMPTED]
    again = [cluster.start("worker", index) for index in (0, 1)]
    assert [task.ended() for task in again] == [0, 0]
    goes_on_there(cluster, tasks[0], again[0])


@pytest.mark.thorough
def test_a_coordinator_saves_when_the_scheduled_steps_are_done(make_cluster: MakeCluster) -> None:
    slower = {**SLOW, "waitMilliseconds": 150, "stepsPerExecution": 2}
    cluster = make_cluster(entrypoint="tiny:Loop", parameters=slower)
    tasks = cluster.start_all()
    first = tasks["chief", 0]
    first.until(Event.PROGRESS, epoch=2, epoch_end=False)
    first.signal(signal.SIGTERM)
    assert first.ended() == ExitCode.PREEMPTED
    assert tasks["worker", 0].process.poll() is None
    tasks["chief", 0] = cluster.start("chief")
    assert [task.ended() for task in tasks.values()] == [0, 0, 0, 0]
    goes_on_there(cluster, first, tasks["chief", 0])


@pytest.mark.thorough
@pytest.mark.parametrize(
    "signalled",
    [
        pytest.param([("ps", 0)], id="a drained ps"),
        pytest.param([("ps", 0), ("worker", 0), ("worker", 1), ("chief", 0)], id="the whole run"),
    ],
)
def test_a_coordinator_saves_while_its_servers_can_still_give_their_variables(
    make_cluster: MakeCluster, signalled: list[tuple[str, int]]
) -> None:
    cluster = make_cluster(entrypoint="tiny:Loop", parameters={**SLOW, "waitMilliseconds": 150})
    tasks = cluster.start_all()
    first = tasks["chief", 0]
    first.until(Event.PROGRESS, epoch=2, epoch_end=False)
    for task in signalled:
        tasks[task].signal(signal.SIGTERM)
    assert first.ended() == ExitCode.PREEMPTED
    for role, index in {*signalled, ("chief", 0)}:
        assert tasks[role, index].ended() == ExitCode.PREEMPTED
        tasks[role, index] = cluster.start(role, index)
    assert [task.ended() for task in tasks.values()] == [0, 0, 0, 0]
    goes_on_there(cluster, first, tasks["chief", 0])


@pytest.mark.thorough
def test_a_drained_worker_works_on_while_it_may(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(parameters=SLOW)
    tasks = cluster.start_all()
    in_the_middle(cluster, tasks["chief", 0], epoch=2)
    tasks["worker", 0].signal(signal.SIGTERM)
    assert [task.ended() for task in tasks.values()] == [0, 0, 0, 0]
    assert model_files.iterations(cluster.model_dir, EPOCHS) == EPOCHS * STEPS


@pytest.mark.thorough
def test_a_coordinators_fit_saves_when_the_epoch_is_done(make_cluster: MakeCluster) -> None:
    """Keras schedules the whole epoch ahead."""
    cluster = make_cluster(parameters={**SLOW, "stepsPerExecution": 5})
    tasks = cluster.start_all()
    first = tasks["chief", 0]
    in_the_middle(cluster, first, epoch=2)
    first.signal(signal.SIGTERM)
    assert first.ended() == ExitCode.PREEMPTED
    tasks["chief", 0] = cluster.start("chief")
    assert [task.ended() for task in tasks.values()] == [0, 0, 0, 0]
    assert tasks["chief", 0].until(Event.TRAINING).fields["initial_epoch"] >= 1
    assert model_files.iterations(cluster.model_dir, EPOCHS) == EPOCHS * STEPS


@pytest.mark.thorough
def test_before_the_first_step_it_leaves_at_once(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(strategy="OneDevice", replicas={"chief": 1, "worker": 1})
    chief = cluster.start("chief")  # waits for the worker
    chief.until(Event.WAITING)
    chief.signal(signal.SIGTERM)
    assert chief.ended() == ExitCode.PREEMPTED
