"""A training process that fails is started again in its pod, by its own supervisor."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.worker import model_files
from tests.worker.cluster import PARAMETER_SERVER, RunningTask, eventually
from tests.worker.conftest import MakeCluster
from tests.worker.test_without_tensorflow import run_python, supervised
from tests.worker.whole.test_parameter_server import (
    SLOW,
    all_done,
    children,
    every_step_was_done,
    in_the_middle,
)
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event, Record
from worker.contract.run_config import RESTART_SECONDS
from worker.process.lease import Holder, Lease
from worker.supervisor.restart_limit import Restarts

KILLED = 128 + signal.SIGKILL


def told(records: list[Record]) -> list[tuple[str, int]]:
    return [(record.event, record.fields["exit_code"]) for record in records]


# The rule


@pytest.mark.parametrize("code", [ExitCode.RETRYABLE, ExitCode.PREEMPTED, KILLED, 128 + signal.SIGSEGV])
def test_what_a_retry_may_fix_is_tried_again(code: int) -> None:
    assert Restarts(1).allowed(code)


@pytest.mark.parametrize("code", [0, 1, 2, ExitCode.PROGRAM_ERROR, 128, 255])
def test_what_a_retry_cannot_fix_is_not(code: int) -> None:
    assert not Restarts(1).allowed(code)


def test_an_old_restart_is_forgotten_when_the_task_has_come_further() -> None:
    restarts = Restarts(2)
    restarts.add(0.0)
    restarts.add(1.0)
    assert not restarts.allowed(KILLED)
    restarts.came_further(RESTART_SECONDS - 1.0)
    assert not restarts.allowed(KILLED), "they are not old yet"
    restarts.came_further(RESTART_SECONDS + 0.5)
    assert restarts.allowed(KILLED)
    restarts.add(RESTART_SECONDS + 0.6)
    assert not restarts.allowed(KILLED)
    assert restarts.count == 3


# The supervisor, with processes that do nothing else


def test_a_program_that_always_fails_ends_after_the_limit_as_it_would_without(tmp_path: Path) -> None:
    code, records = supervised("os.kill(os.getpid(), signal.SIGKILL)", restarts=2)
    assert code == KILLED
    again = [(Event.FAILED, KILLED), (Event.RESTARTED, KILLED)]
    assert told(records) == [*again, *again, (Event.FAILED, KILLED)]
    assert [record.fields["restart"] for record in records if record.event == Event.RESTARTED] == [1, 2]


def test_it_goes_on_to_the_end(tmp_path: Path) -> None:
    body = f"mark = {str(tmp_path / 'ran')!r}; again = os.path.exists(mark); open(mark, 'w'); "
    code, records = supervised(body + "return 0 if again else 75", restarts=1)
    assert code == 0
    assert told(records) == [(Event.RESTARTED, 75)]


@pytest.mark.parametrize("code", [ExitCode.PROGRAM_ERROR, 1])
def test_a_wrong_program_is_not_started_again(code: int) -> None:
    assert supervised(f"return {int(code)}", restarts=3) == (code, [])


def test_a_process_that_was_silent_is_not_started_again() -> None:
    code, records = supervised("time.sleep(60)", 0.3, stacks=True, restarts=3)
    assert code == ExitCode.RETRYABLE
    assert told(records) == [(Event.FAILED, ExitCode.RETRYABLE)]


def test_a_process_that_has_waited_in_vain_is_not_started_again() -> None:
    assert supervised("watch.stay_down(); return 75", restarts=3) == (75, [])


@pytest.mark.parametrize("end", ["return 143", "os.kill(os.getpid(), signal.SIGKILL)", "return 75"])
def test_nothing_is_started_again_after_sigterm(end: str) -> None:
    """The pod is told to stop; the starter stands between the supervisor and the training process."""
    supervisor = "int(open(f'/proc/{os.getppid()}/stat').read().split()[3])"
    body = f"signal.signal(15, lambda *_: None); os.kill({supervisor}, 15); time.sleep(0.5); {end}"
    code, records = supervised(body, restarts=3)
    assert code == (75 if end == "return 75" else ExitCode.PREEMPTED)
    assert records == []


def test_what_the_process_has_started_ends_with_it(tmp_path: Path) -> None:
    body = (
        f"import subprocess; mark = {str(tmp_path / 'pid')!r}\n"
        "    if os.path.exists(mark):\n"
        "        print('left:', os.path.exists(f'/proc/{open(mark).read()}')); return 0\n"
        "    open(mark, 'w').write(str(subprocess.Popen(['sleep', '60'], start_new_session=True).pid))\n"
        "    os._exit(75)"
    )
    code = (
        "import os, signal, time\nfrom worker.process.watch import stalled\n"
        "from worker.supervisor.supervisor import Limits, Work, supervise\n"
        f"def train(watch):\n    {body}\n"
        "supervise(Work(train, forks=True), stalled('starting', 20), 'tiny-chief-0', {}, Limits(30, 1))"
    )
    assert "left: False" in run_python(code).stdout


def test_a_lease_is_renewed_no_more_when_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next holder is another process of the same run, which must not find itself overtaken."""
    monkeypatch.setattr("worker.process.lease.RENEW_SECONDS", 0.01)
    mine, next_one = (Lease(str(tmp_path), Holder("tiny", "1", name, "tiny-chief-0", "")) for name in "ab")
    lost: list[Holder] = []
    mine.claim()
    mine.keep(lost.append)
    file = tmp_path / "lease.json"
    eventually(lambda: '"counter": 0' not in file.read_text(), "it is renewed")
    assert mine.stop(5.0)
    next_one.claim()
    assert next_one.renew() is None
    assert lost == []


# When a fork is safe

FORK = "import {name}\nfrom worker.supervisor import starter\n{before}\nprint(starter.may_fork())"


@pytest.mark.parametrize(
    ("before", "safe"),
    [
        ("", True),
        (
            "import threading, time; threading.Thread(target=time.sleep, args=(5,), daemon=True).start()",
            False,
        ),
        ("import os; driver = os.open('/dev/ptmx', os.O_RDWR)", False),
    ],
    ids=["nothing", "thread", "device"],
)
def test_a_fork_must_not_lose_a_thread_or_share_a_device(before: str, safe: bool) -> None:
    done = run_python(FORK.format(name="os", before=before))
    assert done.stdout.strip() == str(safe), done.stderr


@pytest.mark.parametrize("keras", ["2", "3", "none"])
def test_tensorflow_can_be_forked_when_it_is_only_imported(keras: str) -> None:
    """No thread is left, no device is open, and TensorFlow has not looked for a GPU yet."""
    before = (
        "from worker.runtime import prepare_environment\nfrom worker.imports import import_tensorflow\n"
        f"prepare_environment({int(keras) if keras != 'none' else None})\n"
        f"import_tensorflow(keras={keras != 'none'})\n"
        "from tensorflow.python.eager import context\nassert not context.context()._initialized"
    )
    done = run_python(FORK.format(name="os", before=before))
    assert done.stdout.strip() == "True", done.stderr


# Real tasks


def training_process(task: RunningTask) -> int:
    """The supervisor has started the starter, and that the training process."""
    (starter,) = children(task.process.pid)
    eventually(lambda: len(children(starter)) == 1, "the training process")
    return children(starter)[0]


def kill_in_its_pod(task: RunningTask, restart: int = 1) -> None:
    os.kill(training_process(task), signal.SIGKILL)
    assert task.until(Event.RESTARTED, restart=restart).fields["exit_code"] == KILLED


def test_each_role_of_parameter_server_comes_back_in_its_pod(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(
        replicas={**PARAMETER_SERVER, "evaluator": 1}, parameters={**SLOW, "epochs": 5}, restarts_in_place=3
    )
    tasks = cluster.start_all()
    chief = tasks["chief", 0]
    in_the_middle(cluster, chief, epoch=2)
    kill_in_its_pod(tasks["worker", 1])
    tasks["worker", 1].eventually(
        lambda: len(tasks["worker", 1].records(Event.READY)) == 2, "the worker serves again"
    )
    kill_in_its_pod(tasks["evaluator", 0])
    kill_in_its_pod(chief)
    chief.eventually(lambda: len(chief.records(Event.TRAINING)) == 2, "the chief trains again")
    os.kill(training_process(tasks["ps", 0]), signal.SIGKILL)
    assert chief.until(Event.RESTARTED, restart=2).fields["exit_code"] == ExitCode.RETRYABLE
    all_done(tasks)
    every_step_was_done(cluster, epochs=5)
    assert chief.records(Event.TRAINING)[-1].fields["initial_epoch"] >= 1, "it goes on from a checkpoint"
    assert not (cluster.model_dir / "lease.json").exists(), "the last process has given the lease back"
    assert tasks["evaluator", 0].records(Event.EVALUATION)[-1].fields["checkpoint"] == "ckpt-5"


@pytest.mark.thorough
@pytest.mark.parametrize("lost", ["worker 1", "worker 0", "starter"])
def test_a_collective_starts_again_together(make_cluster: MakeCluster, lost: str) -> None:
    """With the starter, all that it has imported is lost, and its supervisor starts a new Python."""
    parameters = {**SLOW, "epochs": 3}
    cluster = make_cluster(
        strategy="MultiWorkerMirrored", replicas={"worker": 2}, parameters=parameters, restarts_in_place=3
    )
    tasks = cluster.start_all()
    in_the_middle(cluster, tasks["worker", 0], epoch=2)
    if lost == "starter":
        (starter,) = children(tasks["worker", 1].process.pid)
        os.kill(starter, signal.SIGKILL)
        assert tasks["worker", 1].until(Event.RESTARTED).fields["exit_code"] == KILLED
    else:
        kill_in_its_pod(tasks["worker", int(lost[-1])])
    all_done(tasks)
    again = [len(task.records(Event.RESTARTED)) for task in tasks.values()]
    assert again == [1, 1], "neither connected to a process that was about to end"
    assert model_files.iterations(cluster.model_dir, 3) == 180
    assert tasks["worker", 0].records(Event.TRAINING)[-1].fields["initial_epoch"] >= 1
