"""Scripts of the user's own: run by the runtime, as plain commands that call it, and as the examples."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.worker.cluster import PARAMETER_SERVER, PATIENCE_SECONDS, PROGRAMS, ROOT, Cluster, RunningTask
from tests.worker.conftest import MakeCluster
from tests.worker.whole.test_parameter_server import may_unshare
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event

ONE = {"strategy": "OneDevice", "replicas": {"chief": 1}, "entrypoint": None, "model_dir": None}
SERVING = (("worker", 0), ("worker", 1), ("ps", 0))


def script(cluster: Cluster, *arguments: str, role: str = "chief", index: int = 0) -> RunningTask:
    name, *others = arguments
    return cluster.start(role, index, python=("-m", "worker", "--", str(PROGRAMS / name), *others))


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> Cluster:
    return make_cluster(replicas=PARAMETER_SERVER, entrypoint=None, model_dir=None)


def test_all_tasks_leave_when_the_script_is_over(cluster: Cluster) -> None:
    chief = script(cluster, "own.py", "plain", "--rate", "0.1")
    waits = chief.until(Event.WAITING)
    assert sorted(waits.fields["tasks"]) == ["tiny-ps-0", "tiny-worker-0", "tiny-worker-1"]
    serving = [cluster.start(*task) for task in SERVING]
    assert chief.ended() == 0, chief.output
    sees = [("chief", 1), ("ps", 1), ("worker", 2)]
    assert f"sees {sees} ['plain', '--rate', '0.1'] __main__" in chief.lines
    assert "enough" in chief.lines
    released = chief.until(Event.RELEASED).fields
    assert (sorted(released["tasks"]), released["unreachable"]) == (sorted(waits.fields["tasks"]), [])
    for task in serving:
        assert task.ended() == 0
        assert task.until(Event.RELEASED).fields["outcome"] == "done"


def test_an_exception_is_one_record_with_the_scripts_lines(cluster: Cluster) -> None:
    serving = [cluster.start(*task) for task in SERVING]
    chief = script(cluster, "own.py", "broken")
    assert chief.ended() == ExitCode.PROGRAM_ERROR
    (failed,) = chief.records(Event.FAILED)
    assert failed.fields["message"].startswith("BrokenError: no more than 1 of these")
    assert 'File "own.py"' in failed.fields["traceback"]
    assert "in main" in failed.fields["traceback"]
    assert "tensorflow" not in failed.fields["traceback"]
    assert "runpy" not in failed.fields["traceback"]
    assert not [line for line in chief.lines if line.startswith("Traceback")], "told twice"
    for task in serving:
        assert task.ended() == 0
        assert task.until(Event.RELEASED).fields["outcome"] == "failed"


@pytest.mark.thorough
def test_a_lost_ps_is_another_try_and_the_workers_stay(cluster: Cluster) -> None:
    serving = {task: cluster.start(*task) for task in SERVING}
    chief = script(cluster, "own.py", "long")
    chief.printed("epoch 3")
    serving["ps", 0].kill()
    assert chief.ended() == ExitCode.RETRYABLE
    assert "a task was lost while running" in chief.until(Event.FAILED).fields["message"]
    assert not chief.records(Event.RELEASED)

    ps = cluster.start("ps")
    chief = script(cluster, "own.py", "plain")
    assert chief.ended() == 0, chief.output
    assert ps.ended() == 0
    for worker in (serving["worker", 0], serving["worker", 1]):
        assert worker.ended() == 0


@pytest.mark.thorough
def test_one_call_releases_from_a_plain_command(cluster: Cluster) -> None:
    serving = [cluster.start(*task) for task in SERVING]
    chief = cluster.start("chief", python=(str(PROGRAMS / "own.py"), "release"))
    assert chief.ended() == 0, chief.output
    assert len(chief.records(Event.RELEASED)) == 1
    assert "released tiny-chief-0" in chief.lines
    assert "Failed to remove function" not in chief.output
    for task in serving:
        assert task.ended() == 0
        assert task.until(Event.RELEASED).fields["outcome"] == "done"


def test_outside_of_the_launcher_the_call_says_so() -> None:
    code = "import sys, worker; worker.alive(); worker.release(); print('tensorflow' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
    assert done.stderr == "worker.release(): no run of the launcher, nobody to release\n"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("value", "code", "message"),
    [
        ("0", ExitCode.DONE, ""),
        ("3", ExitCode.PROGRAM_ERROR, "quick.py called sys.exit(3)"),
        ("no such data set", ExitCode.PROGRAM_ERROR, "quick.py: no such data set"),
        ("75", 75, "quick.py called sys.exit(75): retried"),
        ("130", 130, "quick.py called sys.exit(130): retried"),
    ],
)
def test_sys_exit(make_cluster: MakeCluster, value: str, code: int, message: str) -> None:
    task = script(make_cluster(**ONE), "quick.py", "exit", value)
    assert task.ended() == code
    failed = [record.fields for record in task.records(Event.FAILED)]
    assert [(fields["message"], fields["exit_code"]) for fields in failed] == (
        [(f"{PROGRAMS}/{message}", code)] if message else []
    )
    assert bool(task.records(Event.DONE)) == (code == 0)
    assert "atexit ran" in task.lines


@pytest.mark.thorough
def test_the_end_is_python_s_own(make_cluster: MakeCluster) -> None:
    task = script(make_cluster(**ONE), "quick.py", "thread")
    assert task.ended() == 0
    assert [line for line in task.lines if not line.startswith("{")] == ["thread ends", "atexit ran"]


@pytest.mark.thorough
def test_a_silent_script_is_left_alone_until_it_has_spoken(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(**ONE, stall_seconds=5, starting_deadline_seconds=5)
    silent = script(cluster, "quick.py", "silent")
    hung = script(cluster, "quick.py", "alive")
    command = cluster.start("chief", python=(str(PROGRAMS / "quick.py"), "alive"))
    assert silent.ended() == 0
    assert "False" in silent.lines, "the runtime has imported TensorFlow"
    assert hung.ended() == ExitCode.RETRYABLE
    message = hung.until(Event.FAILED).fields["message"]
    assert "nothing moved for 5 s while running" in message
    assert "worker.alive() was not called" in message
    assert command.ended() == 1
    assert "Timeout (0:00:05)!" in command.output


HIDDEN = 'mount -t tmpfs -o ro none "$0" && exec "$@"'
"""As pods have the model directory that do not mount it: nothing is there, and nothing can be written."""


@pytest.mark.nightly
@pytest.mark.thorough
@pytest.mark.skipif(not may_unshare(), reason="needs root and mount namespaces")
@pytest.mark.parametrize("by", ["runtime", "command"])
def test_what_a_script_saves_is_written_by_the_chief(cluster: Cluster, tmp_path: Path, by: str) -> None:
    model = tmp_path / "model"
    model.mkdir()
    hidden = ("unshare", "-m", "sh", "-c", HIDDEN, str(model))
    serving = [cluster.start(*task, prefix=hidden) for task in SERVING]
    if by == "runtime":
        chief = script(cluster, "saves.py", str(model))
    else:
        chief = cluster.start("chief", python=(str(PROGRAMS / "saves.py"), str(model), "by itself"))
    assert chief.ended() == 0, chief.output
    ways = ("ModelCheckpoint", "CheckpointManager", "BackupAndRestore", "model.save")
    assert [f"{way} restored" for way in ways] == [line for line in chief.lines if line.endswith(" restored")]
    assert "the ps cannot write" in chief.lines, (
        "its directory was not hidden, or the device it was given not used"
    )
    assert all(task.ended() == 0 for task in serving)


@pytest.mark.thorough
def test_a_module(make_cluster: MakeCluster, tmp_path: Path) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "task.py").write_text("import sys\nprint(__name__, sys.argv[1:])\n1 / 0\n")
    task = make_cluster(**ONE).start(
        "chief", python=("-m", "worker", "--", "-m", "trainer.task", "--epochs", "2")
    )
    assert task.ended() == ExitCode.PROGRAM_ERROR
    assert "__main__ ['--epochs', '2']" in task.lines
    assert 'task.py", line 3' in task.until(Event.FAILED).fields["traceback"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train.py",), "got 'train.py', and takes no arguments or a script: python -m worker -- SCRIPT"),
        (("--",), "and takes no arguments or a script"),
        (
            ("--", str(PROGRAMS / "trian.py")),
            f"there is no script {PROGRAMS}/trian.py to run; {PROGRAMS} has ",
        ),
        (("--", "-m", "no.such"), "there is no module no.such to run"),
    ],
)
def test_nothing_to_run(make_cluster: MakeCluster, arguments: tuple[str, ...], message: str) -> None:
    task = make_cluster(**ONE).start("chief", python=("-m", "worker", *arguments))
    assert task.ended() == ExitCode.PROGRAM_ERROR
    (failed,) = task.records(Event.FAILED)
    assert message in failed.fields["message"]
    assert failed.fields["traceback"] == ""


@pytest.mark.thorough
@pytest.mark.parametrize("failing", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_every_task_of_a_collective_run_has_the_script(make_cluster: MakeCluster, failing: bool) -> None:
    cluster = make_cluster(
        strategy="MultiWorkerMirrored", replicas={"worker": 2}, entrypoint=None, model_dir=None
    )
    arguments = ("1",) if failing else ()
    workers = [script(cluster, "mirrored.py", *arguments, role="worker", index=index) for index in range(2)]
    codes = [worker.ended() for worker in workers]
    assert all("the sum is 3" in worker.lines for worker in workers)
    assert codes == ([ExitCode.RETRYABLE, ExitCode.PROGRAM_ERROR] if failing else [0, 0])


@pytest.mark.thorough
def test_sigterm_is_a_drained_task(cluster: Cluster) -> None:
    serving = [cluster.start(*task) for task in SERVING]
    chief = script(cluster, "own.py", "long")
    chief.printed("epoch 3")
    chief.signal(signal.SIGTERM)
    assert chief.ended() == ExitCode.PREEMPTED
    assert not chief.records(Event.RELEASED)
    assert all(task.process.poll() is None for task in serving)


@pytest.mark.nightly
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("cluster", 'spec.chief.args=["--", train.py, --epochs, "2"]'),
        ("cluster-command", 'spec.chief.command=[python, train.py, --release, --epochs, "2"]'),
    ],
)
def test_the_example(tmp_path: Path, name: str, change: str) -> None:
    """Through the launcher: the folder of the script is the process's own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path)}
    launcher = [sys.executable, "-m", "launcher"]
    file = str(ROOT / "examples" / "own-script" / f"{name}.yaml")
    done = subprocess.run(
        [*launcher, "submit", file, "--backend", "local", "--set", change],
        env=environment,
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = "own-script" if name == "cluster" else "own-command"
    logs = subprocess.run(
        [*launcher, "logs", run, "--role", "chief"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = [line for line in logs.stdout.splitlines() if "held-out accuracy" in line]
    accuracy, steps = float(line.split()[-4]), int(line.split()[-2])
    assert accuracy > 0.6
    assert steps >= 2 * 94
    assert subprocess.run([*launcher, "delete", run], env=environment, capture_output=True).returncode == 0


def test_a_script_without_a_strategy_fails_at_once(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(
        strategy="MultiWorkerMirrored", replicas={"worker": 2}, entrypoint=None, model_dir=None
    )
    workers = [script(cluster, "alone.py", role="worker", index=index) for index in range(2)]
    # The other may wait for the first to be over: the exit code of one ends the run.
    deadline = time.monotonic() + PATIENCE_SECONDS
    while all(worker.process.poll() is None for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first = next(worker for worker in workers if worker.process.poll() is not None)
    assert first.ended() == ExitCode.PROGRAM_ERROR
    message = first.until(Event.FAILED).fields["message"]
    assert "alone.py ended without building a tf.distribute.MultiWorkerMirroredStrategy" in message
