"""Tasks that hang, that cannot be reached, that never come back; and errors that a retry cannot fix."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worker import model_files
from tests.worker.cluster import Cluster, RunningTask
from tests.worker.conftest import MakeCluster
from tests.worker.whole.test_parameter_server import children, in_the_middle, may_unshare
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event

pytestmark = pytest.mark.thorough

SLOW = {"epochs": 4, "stepsPerEpoch": 60, "waitMilliseconds": 40}
ONE = {"strategy": "OneDevice", "replicas": {"chief": 1}}


def freeze(task: RunningTask) -> None:
    """Stops all processes of a task, as on a stopped node: the supervisor too."""
    for process in [task.process.pid, *children(task.process.pid)]:
        os.kill(process, signal.SIGSTOP)


def notices(task: RunningTask) -> str:
    return "\n".join(record.fields["message"] for record in task.records(Event.NOTICE))


def every_step_was_done(cluster: Cluster) -> None:
    done = model_files.iterations(cluster.model_dir, SLOW["epochs"])
    assert done >= SLOW["epochs"] * SLOW["stepsPerEpoch"]


@pytest.mark.nightly
def test_a_hung_server_is_ended_by_its_own_supervisor_and_the_chief_goes_on(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(parameters=SLOW, stall_seconds=40)
    tasks = cluster.start_all()
    in_the_middle(cluster, tasks["chief", 0], epoch=2)
    (server,) = children(tasks["worker", 1].process.pid)
    os.kill(server, signal.SIGSTOP)
    assert tasks["worker", 1].ended() == ExitCode.RETRYABLE
    assert "nothing moved for 20 s while serving" in tasks["worker", 1].until(Event.FAILED).fields["message"]
    tasks["worker", 1] = cluster.start("worker", 1)
    assert [task.ended() for task in tasks.values()] == [0, 0, 0, 0]
    assert len(tasks["chief", 0].records(Event.TRAINING)) == 1, "the chief need not start again"
    every_step_was_done(cluster)


@pytest.mark.nightly
def test_the_next_chief_goes_on_without_a_worker_that_is_frozen(make_cluster: MakeCluster) -> None:
    """It is worker 0, so the other worker is renumbered."""
    cluster = make_cluster(parameters=SLOW, stall_seconds=10, starting_deadline_seconds=60)
    tasks = cluster.start_all()
    first = tasks.pop(("chief", 0))
    in_the_middle(cluster, first, epoch=2)
    frozen = tasks.pop(("worker", 0))
    freeze(frozen)
    assert first.ended() == ExitCode.RETRYABLE
    message = first.until(Event.FAILED).fields["message"]
    assert "tiny-worker-0 (it accepts connections but does not answer)" in message
    second = cluster.start("chief")
    assert second.ended() == 0
    assert "continuing without tiny-worker-0" in notices(second)
    assert second.until(Event.RELEASED).fields["tasks"] == ["tiny-worker-1", "tiny-ps-0"]
    assert [task.ended() for task in tasks.values()] == [0, 0]
    every_step_was_done(cluster)


def test_a_worker_that_stays_away_is_missed_once_and_greeted_when_it_is_back(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(parameters={**SLOW, "epochs": 1000})
    tasks = cluster.start_all()
    chief = tasks["chief", 0]
    in_the_middle(cluster, chief, epoch=1)
    tasks["worker", 1].kill()
    missed = "training continues with 1 of 2 workers, without tiny-worker-1 (nothing listens on its port: "
    chief.until_notice(missed)
    assert chief.process.poll() is None
    cluster.start("worker", 1)
    chief.until_notice("back again: tiny-worker-1")
    assert notices(chief).count("training continues with") == 1


@pytest.fixture
def network() -> Iterator[str]:
    """A network namespace in which packets can be dropped."""
    name = f"tf-launcher-{os.getpid()}"
    if not may_unshare() or not shutil.which("iptables") or not shutil.which("ip"):
        pytest.skip("needs root, ip and iptables")
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
    try:
        inside(name, "ip", "link", "set", "lo", "up")
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


def inside(network: str, *command: str) -> None:
    subprocess.run(["ip", "netns", "exec", network, *command], check=True, capture_output=True)


@pytest.mark.nightly
def test_the_next_chief_goes_on_without_a_worker_that_is_cut_off(
    make_cluster: MakeCluster, network: str
) -> None:
    """Packets are dropped, and no connection is reset."""
    cluster = make_cluster(parameters=SLOW, stall_seconds=10)
    prefix = ("ip", "netns", "exec", network)
    tasks = {task: cluster.start(*task, prefix=prefix) for task in cluster.addresses}
    first = tasks.pop(("chief", 0))
    in_the_middle(cluster, first, epoch=2)
    port = cluster.addresses["worker", 1].rpartition(":")[2]
    for side in ("--dport", "--sport"):
        inside(network, "iptables", "-A", "INPUT", "-p", "tcp", side, port, "-j", "DROP")
    assert first.ended() == ExitCode.RETRYABLE
    assert "nothing moved for 10 s" in first.until(Event.FAILED).fields["message"]
    second = cluster.start("chief", prefix=prefix)
    assert second.ended() == 0
    assert "continuing without tiny-worker-1" in notices(second)
    assert tasks["worker", 0].ended() == 0
    assert tasks["ps", 0].ended() == 0
    every_step_was_done(cluster)


@pytest.mark.nightly
def test_a_hung_training_process_is_ended_by_its_supervisor(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(**ONE, parameters=SLOW, stall_seconds=5)
    first = cluster.start("chief")
    in_the_middle(cluster, first, epoch=2)
    (process,) = children(first.process.pid)
    os.kill(process, signal.SIGSTOP)
    assert first.ended() == ExitCode.RETRYABLE
    second = cluster.start("chief")
    assert second.ended() == 0
    assert model_files.iterations(cluster.model_dir, 4) == 240


@pytest.mark.parametrize("entrypoint", ["tiny:Checked", "tiny:CheckedLoop"])
def test_a_checked_nan_is_told_once_and_ends_all_tasks(make_cluster: MakeCluster, entrypoint: str) -> None:
    cluster = make_cluster(entrypoint=entrypoint)
    tasks = cluster.start_all()
    chief = tasks.pop(("chief", 0))
    assert chief.ended() == ExitCode.PROGRAM_ERROR
    (failed,) = chief.records(Event.FAILED)
    assert "the loss is not a number" in failed.fields["message"]
    assert [task.ended() for task in tasks.values()] == [0, 0, 0]
    assert tasks["worker", 0].until(Event.RELEASED).fields == {"outcome": "failed"}


@pytest.mark.parametrize("options", [ONE, {}], ids=["one task", "parameter servers"])
def test_too_little_memory_is_told_once_with_what_takes_less(
    make_cluster: MakeCluster, options: dict[str, Any]
) -> None:
    tasks = make_cluster(**options, entrypoint="tiny:Huge").start_all()
    chief = tasks["chief", 0]
    assert chief.ended() == ExitCode.PROGRAM_ERROR
    (failed,) = chief.records(Event.FAILED)
    message = failed.fields["message"]
    assert message.startswith("the memory did not suffice while training epoch 1: ResourceExhaustedError: ")
    assert "OOM when allocating tensor with shape[8388608,8388608]" in message
    assert message.endswith(
        "a smaller globalBatchSize takes less, and so does mixed precision (mixed_float16)"
    )
    assert "tiny.py" in failed.fields["traceback"]


def test_a_checkpoint_of_another_model(make_cluster: MakeCluster) -> None:
    first = make_cluster(**ONE, parameters={"epochs": 1000})
    chief = first.start("chief")
    chief.until(Event.CHECKPOINT)
    chief.kill()
    second = make_cluster(**ONE, parameters={"epochs": 1000, "width": 8})
    chief = second.start("chief")
    assert chief.ended() == ExitCode.PROGRAM_ERROR
    (failed,) = chief.records(Event.FAILED)
    assert "was written by another model than this program's" in failed.fields["message"]
    assert "give the run another spec.modelDir, or empty this one" in failed.fields["message"]
    assert not failed.fields["traceback"]


@pytest.mark.skipif(not may_unshare(), reason="needs root and mount namespaces")
def test_a_read_only_model_directory(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(**ONE)
    cluster.model_dir.mkdir(parents=True)
    script = f'mount -t tmpfs -o ro none {cluster.model_dir} && exec "$@"'
    chief = cluster.start("chief", prefix=("unshare", "-m", "sh", "-c", script, "sh"))
    assert chief.ended() == ExitCode.PROGRAM_ERROR
    (failed,) = chief.records(Event.FAILED)
    assert "Read-only file system; spec.modelDir must be a path" in failed.fields["message"]


def test_tensorflows_own_tools_find_the_checkpoints(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = make_cluster(**ONE, parameters={"epochs": 7})
    assert cluster.start("chief").ended() == 0
    moved = tmp_path / "moved"
    shutil.copytree(cluster.model_dir / "checkpoints", moved)
    lines = (moved / "checkpoint").read_text().splitlines()
    assert lines[0] == 'model_checkpoint_path: "ckpt-7"'
    assert lines[1:6] == [f'all_model_checkpoint_paths: "ckpt-{epoch}"' for epoch in (3, 4, 5, 6, 7)]
    code = (
        "import sys, tensorflow as tf\n"
        "print(tf.train.latest_checkpoint(sys.argv[1]))\n"
        "manager = tf.train.CheckpointManager(tf.train.Checkpoint(), sys.argv[1], 5)\n"
        "print(len(manager.checkpoints))\n"
        "print(next(tf.train.checkpoints_iterator(sys.argv[1], timeout=1)))\n"
    )
    command = [sys.executable, "-c", code, str(moved)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(moved / "ckpt-7"), "5", str(moved / "ckpt-7")]
