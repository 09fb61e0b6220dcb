"""Workers of a ParameterServer run that come, go and come back, while the others continue."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.worker import model_files
from tests.worker.cluster import PROGRAMS, Cluster, RunningTask
from tests.worker.conftest import MakeCluster
from tests.worker.whole.test_parameter_server import all_done, children, in_the_middle
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event
from worker.contract.run_config import ElasticWorkers

pytestmark = pytest.mark.nightly

IN_FLIGHT = 40
"""Steps that lost workers may have done without their chief's knowledge."""
HELD_OUT_LIKED = 400

Tasks = dict[tuple[str, int], RunningTask]


def begun(cluster: Cluster, *workers: int) -> Tasks:
    """Starts chief, ps and some of the workers."""
    tasks = [("chief", 0), ("ps", 0), *(("worker", worker) for worker in workers)]
    return {task: cluster.start(*task) for task in tasks}


def changes(chief: RunningTask) -> list[list[list[int]]]:
    """Returns the members, the joined and the left, of each record."""
    records = chief.records(Event.MEMBERSHIP)
    return [[record.fields[name] for name in ("workers", "joined", "left")] for record in records]


def until_members(chief: RunningTask, *workers: int) -> None:
    def are_members() -> bool:
        memberships = changes(chief)
        return bool(memberships) and memberships[-1][0] == [*workers]

    chief.eventually(are_members, f"members {workers}")


def took_steps(cluster: Cluster, epochs: int, steps: int) -> None:
    """Each step that was due is counted, and those of lost workers at most twice."""
    counted = model_files.iterations(cluster.model_dir, epochs)
    assert epochs * steps <= counted <= epochs * steps + IN_FLIGHT


@pytest.mark.thorough
def test_workers_come_and_go_for_good_and_a_stranger_is_refused(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """They need a lookup table that model() makes. Each evaluation counts all samples once."""
    cluster = make_cluster(
        entrypoint="words:Words",
        elastic=ElasticWorkers(min=1, max=4, replicas=3),
        parameters={"epochs": 5, "stepsPerEpoch": 300, "stepMilliseconds": 2},
    )
    tasks = begun(cluster, 0)
    chief = tasks["chief", 0]
    chief.until(Event.PROGRESS, epoch=1)
    assert changes(chief) == [[[0], [0], []]]

    other = tmp_path / "other"
    other.mkdir()
    (other / "words.py").write_text("Words = None\n")
    cluster.source = other
    tasks["worker", 2] = cluster.start("worker", 2)
    cluster.source = PROGRAMS
    tasks["worker", 3] = cluster.start("worker", 3)
    tasks["worker", 3].printed("reading")
    until_members(chief, 0, 3)
    chief.until_notice("tiny-worker-2 is not taken in: its program differs from the chief's")
    tasks["worker", 1] = cluster.start("worker", 1)
    tasks.pop(("worker", 0)).kill()
    tasks["worker", 1].printed("reading")
    until_members(chief, 1, 3)

    all_done(tasks)
    took_steps(cluster, 5, 300)
    evaluations = [record.fields["metrics"] for record in chief.records(Event.EVALUATION)]
    assert [metrics["hits"] + metrics["misses"] for metrics in evaluations] == [HELD_OUT_LIKED] * 5
    released = chief.until(Event.RELEASED).fields
    assert {"tiny-worker-1", "tiny-worker-2", "tiny-worker-3", "tiny-ps-0"} == set(released["tasks"])
    assert "reading" not in tasks["worker", 2].output


@pytest.mark.thorough
def test_too_few_workers_end_the_wait_with_their_number(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(elastic=ElasticWorkers(min=2, max=4, replicas=3), starting_deadline_seconds=20)
    tasks = begun(cluster, 2)
    assert tasks["chief", 0].ended() == ExitCode.RETRYABLE
    message = tasks["chief", 0].until(Event.FAILED).fields["message"]
    assert message.startswith(
        "1 of at least 2 workers came (minReplicas): after 20 s there was no answer from"
    )
    assert "tiny-worker-2" not in message


@pytest.mark.thorough
def test_of_two_lost_workers_the_one_that_is_back_works_at_once(make_cluster: MakeCluster) -> None:
    """Not in an elastic run only."""
    cluster = make_cluster(
        replicas={"chief": 1, "worker": 3, "ps": 1},
        entrypoint="words:Words",
        parameters={"epochs": 4, "stepsPerEpoch": 400, "stepMilliseconds": 2},
    )
    tasks = cluster.start_all()
    in_the_middle(cluster, tasks["chief", 0], epoch=1)
    tasks["worker", 1].kill()
    tasks["worker", 2].kill()
    tasks["worker", 2] = cluster.start("worker", 2)
    tasks["worker", 2].printed("reading")
    del tasks["worker", 1]
    all_done(tasks)
    took_steps(cluster, 4, 400)


@pytest.mark.thorough
def test_fit_evaluates_while_workers_join_and_a_new_chief_finds_the_members(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(
        entrypoint="tiny:Tiny",
        elastic=ElasticWorkers(min=1, max=4, replicas=2),
        parameters={"epochs": 40, "stepsPerEpoch": 40, "stepMilliseconds": 2},
    )
    tasks = begun(cluster, 1)
    tasks["chief", 0].until(Event.PROGRESS, epoch=2)
    for worker in (3, 0, 2):
        tasks["worker", worker] = cluster.start("worker", worker)
    until_members(tasks["chief", 0], 0, 1, 2, 3)
    tasks.pop(("worker", 1)).kill()
    tasks["chief", 0].kill()
    done = model_files.epochs(cluster.model_dir)[-1]
    tasks["chief", 0] = chief = cluster.start("chief")
    assert chief.until(Event.TRAINING).fields["initial_epoch"] >= done
    assert changes(chief)[0][0] == [0, 2, 3]
    tasks["worker", 1] = cluster.start("worker", 1)
    until_members(chief, 0, 1, 2, 3)
    all_done(tasks)
    took_steps(cluster, 40, 40)
    evaluations = [record.fields["epoch"] for record in chief.records(Event.EVALUATION)]
    assert evaluations == [*range(evaluations[0], 41)]


@pytest.mark.thorough
def test_a_hung_worker_is_ended_and_then_another_joins(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(
        entrypoint="words:Words",
        elastic=ElasticWorkers(min=1, max=3, replicas=2),
        parameters={"epochs": 1, "stepsPerEpoch": 6000, "stepMilliseconds": 2},
        stall_seconds=30,
    )
    tasks = begun(cluster, 0, 1)
    tasks["chief", 0].until(Event.PROGRESS, epoch=1)
    hung = tasks.pop(("worker", 1))
    for process in children(hung.process.pid):
        os.kill(process, signal.SIGSTOP)
    tasks["worker", 2] = cluster.start("worker", 2)
    assert hung.ended() == ExitCode.RETRYABLE
    tasks["worker", 2].printed("reading")
    until_members(tasks["chief", 0], 0, 2)
    all_done(tasks)
    took_steps(cluster, 1, 6000)


@pytest.mark.thorough
def test_dead_chiefs_leave_one_models_memory_on_the_ps(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(parameters={"epochs": 1000, "stepsPerEpoch": 5, "width": 2_000_000})
    tasks = cluster.start_all()
    tasks["ps", 0].until(Event.READY)
    (server,) = children(tasks["ps", 0].process.pid)
    used = []
    for _ in range(6):
        chief = tasks["chief", 0]
        chief.until(Event.PROGRESS)
        time.sleep(0.5)
        used.append(resident(server))
        chief.kill()
        tasks["chief", 0] = cluster.start("chief")
    # 2,000,000 units have 48 MB of weights, and twice that in Adam's slots.
    assert max(used[1:]) - used[0] < 140, used


def resident(process: int) -> int:
    """Returns the MiB of memory that a process has."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) // 1024
    raise AssertionError(f"{process} is gone")
