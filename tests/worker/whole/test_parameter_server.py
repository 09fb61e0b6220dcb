"""A chief, workers, a ps and an evaluator, to the end and through the loss of each."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time

import pytest

from tests.worker import model_files
from tests.worker.cluster import PARAMETER_SERVER, PATIENCE_SECONDS, Cluster, RunningTask, eventually
from tests.worker.conftest import MakeCluster
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event

# Epochs long enough to be hit in their middle.
SLOW = {"epochs": 3, "stepsPerEpoch": 60, "stepMilliseconds": 2}


def may_unshare() -> bool:
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return False
    return subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0


def all_done(tasks: dict[tuple[str, int], RunningTask]) -> None:
    assert {task.name: task.ended() for task in tasks.values()} == {task.name: 0 for task in tasks.values()}


def every_step_was_done(cluster: Cluster, epochs: int = 3, steps: int = 60) -> None:
    """At least once: a step that a lost worker had done may be done again."""
    assert model_files.epochs(cluster.model_dir)[-1] == epochs
    assert model_files.iterations(cluster.model_dir, epochs) >= epochs * steps


def in_the_middle(cluster: Cluster, chief: RunningTask, epoch: int) -> None:
    """Waits until the epoch before is saved and a little more: of the slow ones, `epoch` is not over then."""
    if chief.until(Event.TRAINING).fields["initial_epoch"] < epoch - 1:
        chief.until(Event.PROGRESS, epoch=epoch - 1, epoch_end=True)
        saved = cluster.model_dir / "checkpoints" / f"ckpt-{epoch - 1}.index"
        eventually(saved.is_file, f"epoch {epoch - 1} is saved")
    time.sleep(0.5)


def test_a_run_ends_by_itself_and_leaves_checkpoints_logs_and_an_export(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(replicas={**PARAMETER_SERVER, "evaluator": 1}, parameters={"epochs": 7})
    stale = cluster.task_dir("worker", 1) / "released"
    stale.parent.mkdir(parents=True)
    stale.write_text("done")  # of an earlier container of the same pod
    tasks = cluster.start_all()
    all_done(tasks)

    chief, evaluator = tasks["chief", 0], tasks["evaluator", 0]
    names = ["tiny-worker-0", "tiny-worker-1", "tiny-ps-0"]
    assert chief.until(Event.RELEASED).fields == {"tasks": names, "unreachable": []}
    assert tasks["worker", 1].until(Event.RELEASED).fields == {"outcome": "done"}
    for served in (tasks["worker", 1], tasks["ps", 0]):
        events = [record.event for record in served.records() if record.event != Event.DOING]
        assert events == [Event.DEVICES, Event.READY, Event.RELEASED, Event.DONE]
    assert evaluator.until(Event.READY).time < evaluator.until(Event.EVALUATION).time
    assert chief.until(Event.TRAINING).fields == {"epochs": 7, "steps_per_epoch": 20, "initial_epoch": 0}
    ends = [record.fields for record in chief.records(Event.PROGRESS) if record.fields["epoch_end"]]
    assert [end["epoch"] for end in ends] == [1, 2, 3, 4, 5, 6, 7]
    assert ends[-1]["step"] == ends[-1]["steps"] == 20
    assert ends[-1]["loss"] < ends[0]["loss"] / 2
    assert chief.records()[-1].event == Event.DONE

    evaluations = [record.fields for record in evaluator.records(Event.EVALUATION)]
    assert evaluations[-1]["checkpoint"] == "ckpt-7"
    assert evaluations[-1]["metrics"]["loss"] < evaluations[0]["metrics"]["loss"]
    assert model_files.epochs(cluster.model_dir) == [3, 4, 5, 6, 7]
    assert model_files.state(cluster.model_dir)["phase"] == "done"
    assert (cluster.model_dir / "export" / "1" / "saved_model.pb").is_file()
    assert list((cluster.model_dir / "logs" / "train").glob("events*"))
    assert list((cluster.model_dir / "logs" / "evaluation").glob("events*"))


@pytest.mark.nightly
@pytest.mark.thorough
@pytest.mark.skipif(not may_unshare(), reason="needs root and mount namespaces")
def test_only_the_chief_needs_the_model_directory(make_cluster: MakeCluster) -> None:
    """Every other task sees an empty read-only file system where the chief has the model directory."""
    cluster = make_cluster(
        replicas={"chief": 1, "worker": 1, "ps": 2},
        # The first layer's kernel is cut in two by the partitioner: 4 * 40,000 * 4 bytes.
        parameters={"epochs": 2, "width": 40_000},
    )
    cluster.model_dir.mkdir(parents=True)
    hide = f'mount -t tmpfs -o ro none {cluster.model_dir} && exec "$@"'
    hidden = ("unshare", "-m", "sh", "-c", hide, "sh")
    peers = [cluster.start(role, index, hidden) for role, index in [("worker", 0), ("ps", 0), ("ps", 1)]]
    chief = cluster.start("chief")
    chief.until(Event.PROGRESS, epoch=1, epoch_end=True)
    eventually(lambda: model_files.epochs(cluster.model_dir) == [1], "a checkpoint")
    chief.kill()
    restarted = cluster.start("chief")
    assert restarted.until(Event.TRAINING).fields["initial_epoch"] == 1
    assert [task.ended() for task in (restarted, *peers)] == [0, 0, 0, 0]
    assert model_files.iterations(cluster.model_dir, 2) >= 40
    assert (cluster.model_dir / "export" / "1" / "saved_model.pb").is_file()


@pytest.mark.thorough
def test_a_killed_worker_is_used_again_and_no_step_is_missing(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(parameters=SLOW)
    tasks = cluster.start_all()
    in_the_middle(cluster, tasks["chief", 0], epoch=1)
    tasks["worker", 1].kill()
    tasks["worker", 1] = cluster.start("worker", 1)
    all_done(tasks)
    every_step_was_done(cluster)


@pytest.mark.thorough
def test_a_worker_that_comes_back_at_the_end_is_released_too(make_cluster: MakeCluster) -> None:
    """It has done nothing for this chief, whose operations it refuses until it is adopted."""
    cluster = make_cluster(entrypoint="tiny:SlowExport")
    tasks = cluster.start_all()
    eventually(lambda: "exporting" in tasks["chief", 0].output, "the export begins")
    tasks["worker", 1].kill()
    tasks["worker", 1] = cluster.start("worker", 1)
    eventually(lambda: listens(cluster, "worker", 1), "the worker is back")
    (cluster.directory / "go-on").touch()
    all_done(tasks)
    assert tasks["chief", 0].until(Event.RELEASED).fields["unreachable"] == []


@pytest.mark.thorough
def test_a_killed_ps_and_a_killed_chief_cost_an_epoch_at_most(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(parameters=SLOW)
    tasks = cluster.start_all()
    in_the_middle(cluster, tasks["chief", 0], epoch=2)
    tasks["ps", 0].kill()
    assert tasks["chief", 0].ended() == ExitCode.RETRYABLE
    failures = tasks["chief", 0].records(Event.FAILED)
    assert [record.fields["exit_code"] for record in failures] == [ExitCode.RETRYABLE]
    assert "lost" in failures[0].fields["message"]
    assert tasks["worker", 0].process.poll() is None, "workers stay for the next chief"

    tasks["ps", 0] = cluster.start("ps")
    second = cluster.start("chief")
    assert second.until(Event.TRAINING).fields["initial_epoch"] == 1
    in_the_middle(cluster, second, epoch=3)
    trainer = children(second.process.pid)
    second.kill()
    eventually(lambda: not any(is_running(process) for process in trainer), "the chief left no process")

    tasks["chief", 0] = cluster.start("chief")
    assert tasks["chief", 0].until(Event.TRAINING).fields["initial_epoch"] == 2
    all_done(tasks)
    every_step_was_done(cluster)


@pytest.mark.nightly
@pytest.mark.thorough
def test_a_hung_worker_is_named_and_the_chief_leaves_to_be_tried_again(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(parameters={**SLOW, "epochs": 1000}, stall_seconds=6)
    tasks = cluster.start_all()
    in_the_middle(cluster, tasks["chief", 0], epoch=2)
    for process in [tasks["worker", 1].process.pid, *children(tasks["worker", 1].process.pid)]:
        os.kill(process, signal.SIGSTOP)
    assert tasks["chief", 0].ended(PATIENCE_SECONDS) == ExitCode.RETRYABLE
    message = tasks["chief", 0].until(Event.FAILED).fields["message"]
    assert "nothing moved for 6 s" in message
    assert "tiny-worker-1 (it accepts connections but does not answer)" in message
    assert tasks["ps", 0].process.poll() is None

    # A drained task says so by its exit code: 0 would mean that its work is done.
    tasks["ps", 0].signal(signal.SIGTERM)
    assert tasks["ps", 0].ended() == ExitCode.PREEMPTED


@pytest.mark.thorough
def test_an_error_in_the_data_ends_all_tasks(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(parameters={"fail": "step 57"})
    tasks = cluster.start_all()
    chief = tasks.pop(("chief", 0))
    assert chief.ended() == ExitCode.PROGRAM_ERROR
    all_done(tasks)
    assert "in _checked" in chief.until(Event.FAILED).fields["traceback"]
    assert not [line for line in chief.lines if "E0000" in line], "noise after the end"
    assert tasks["worker", 0].until(Event.RELEASED).fields == {"outcome": "failed"}
    assert model_files.state(cluster.model_dir)["phase"] == "failed"


@pytest.mark.thorough
def test_the_data_are_made_once_and_sent(make_cluster: MakeCluster) -> None:
    """A program may read its data once: a file that is removed, a pipe."""
    cluster = make_cluster(entrypoint="tiny:Loop", parameters={"fail": "second train_dataset"})
    all_done(cluster.start_all())


@pytest.mark.thorough
def test_waiting_has_a_deadline_and_names_who_is_missing(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(starting_deadline_seconds=3)
    ps = cluster.start("ps")
    chief = cluster.start("chief")
    assert chief.ended() == ExitCode.RETRYABLE
    assert "tiny-worker-1" in chief.until(Event.WAITING).fields["tasks"]
    message = chief.until(Event.FAILED).fields["message"]
    assert "tiny-worker-0 (nothing listens on its port: connection refused)" in message
    assert "tiny-ps-0" not in message
    assert ps.process.poll() is None


@pytest.mark.thorough
def test_servers_are_retried_when_their_chief_does_not_come(make_cluster: MakeCluster) -> None:
    """With 0 their Jobs would be complete, and a chief that comes later would wait for them in vain."""
    cluster = make_cluster(starting_deadline_seconds=1, chief_lost_seconds=1, restarts_in_place=3)
    worker, ps = cluster.start("worker"), cluster.start("ps")
    for server in (worker, ps):
        assert server.ended() == ExitCode.RETRYABLE
        message = server.until(Event.FAILED).fields["message"]
        assert message == "the chief has not been there for 1 s (chiefLostSeconds)"
        assert not server.records(Event.RESTARTED), "in its pod it would wait without an end"


def listens(cluster: Cluster, role: str, index: int) -> bool:
    from worker.peers.probes import fault

    return fault(cluster.addresses[role, index]) is None


def children(process: int) -> list[int]:
    command = ["ps", "-o", "pid=", "--ppid", str(process)]
    text = subprocess.run(command, capture_output=True, text=True, check=False)
    return [int(word) for word in text.stdout.split()]


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
