"""A supervisor watches its training process, and starts one that fails again in its pod."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.worker import model_files
from tests.worker.cluster import PARAMETER_SERVER, ROOT, RunningTask, eventually
from tests.worker.conftest import MakeCluster
from tests.worker.test_without_tensorflow import run_python
from tests.worker.whole.test_parameter_server import (
    SLOW,
    all_done,
    children,
    every_step_was_done,
    in_the_middle,
)
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event, Record

KILLED = 128 + signal.SIGKILL


def told(records: list[Record]) -> list[tuple[str, int]]:
    return [(record.event, record.fields["exit_code"]) for record in records]


# The supervisor, with processes that do nothing else

SUPERVISE = """
import os, signal, sys, time
from worker.contract.records import Released
from worker.process.watch import Silence, stalled
from worker.supervisor.supervisor import Limits, Work, supervise
def train(watch):
    {body}
work = Work(train, forks={restarts} > 0)
supervise(work, stalled("starting", {seconds}), "tiny-chief-0", {{}}, Limits({grace}, {restarts}))
"""


def supervised(
    body: str, seconds: float = 20.0, stacks: bool = False, grace: int = 30, restarts: int = 0
) -> tuple[int, list[Record]]:
    done = run_python(SUPERVISE.format(body=body, seconds=seconds, grace=grace, restarts=restarts))
    assert ("in train" in done.stderr) if stacks else done.stderr == ""
    return done.returncode, [record for line in done.stdout.splitlines() if (record := Record.parse(line))]


def test_the_exit_code_passes_through() -> None:
    assert supervised("return 70") == (70, [])


def test_silence_ends_a_process_that_no_signal_can_interrupt() -> None:
    body = "signal.pthread_sigmask(signal.SIG_BLOCK, [15]); time.sleep(60)"
    code, (failed,) = supervised(body, 0.3, stacks=True)
    assert code == ExitCode.RETRYABLE
    assert "while starting" in failed.fields["message"]


def test_signs_of_life_keep_it_going() -> None:
    assert supervised("[(time.sleep(0.15), watch.alive()) for _ in range(10)]; return 0", 0.5) == (0, [])


def test_a_frozen_pod_has_not_been_silent() -> None:
    body = "print(os.getpid(), flush=True); [(time.sleep(0.1), watch.alive()) for _ in range(10)]; return 0"
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISE.format(body=body, seconds=2.0, grace=30, restarts=0)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        both = process.pid, int(process.stdout.readline())
        for each in both:
            os.kill(each, signal.SIGSTOP)
        time.sleep(3.0)
        for each in both:
            os.kill(each, signal.SIGCONT)
        assert process.stdout.read() == ""
    assert process.returncode == 0


@pytest.mark.parametrize(("grace", "code"), [(4, ExitCode.PREEMPTED), (30, 0)])
def test_it_may_save_for_as_long_as_the_pod_has(grace: int, code: int) -> None:
    slow = "signal.signal(15, lambda *_: None); os.kill(os.getppid(), 15); time.sleep(3); return 0"
    assert supervised(slow, grace=grace) == (code, [])


def test_what_was_agreed_last_is_said_and_done_on_silence() -> None:
    body = 'watch.expect(Silence(0.2, Released(["a"], ["b"]), 0)); time.sleep(60)'
    code, (released,) = supervised(body)
    assert code == 0
    assert released.event == "released"
    assert released.fields == {"tasks": ["a"], "unreachable": ["b"]}


def test_nobody_trains_on_after_the_supervisor() -> None:
    code = SUPERVISE.format(
        body="print(os.getpid(), flush=True); time.sleep(60)", seconds=60, grace=30, restarts=0
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.kill()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{child}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("body", "code", "restarts"),
    [("return 75", 75, 2), ("os.kill(os.getpid(), signal.SIGKILL)", KILLED, 1)],
    ids=["for another task", "at once, by a signal"],
)
def test_a_program_that_always_fails_ends_as_it_would_without(body: str, code: int, restarts: int) -> None:
    exit_code, records = supervised(body, restarts=2)
    assert exit_code == code
    numbers = [record.fields["restart"] for record in records if record.event == Event.RESTARTED]
    assert numbers == list(range(1, restarts + 1))
    assert {record.fields["exit_code"] for record in records} == {code}


def test_it_goes_on_to_the_end(tmp_path: Path) -> None:
    body = f"mark = {str(tmp_path / 'ran')!r}; again = os.path.exists(mark); open(mark, 'w'); "
    code, records = supervised(body + "return 0 if again else 75", restarts=1)
    assert code == 0
    assert told(records) == [(Event.RESTARTED, 75)]


def test_a_process_that_was_silent_is_not_started_again() -> None:
    code, records = supervised("time.sleep(60)", 0.3, stacks=True, restarts=3)
    assert code == ExitCode.RETRYABLE
    assert told(records) == [(Event.FAILED, ExitCode.RETRYABLE)]


def test_a_process_that_has_waited_in_vain_is_not_started_again() -> None:
    assert supervised("watch.stay_down(); return 75", restarts=3) == (75, [])


def test_nothing_is_started_again_after_sigterm() -> None:
    """The pod is told to stop; the starter stands between the supervisor and the training process."""
    supervisor = "int(open(f'/proc/{os.getppid()}/stat').read().split()[3])"
    slow = f"signal.signal(15, lambda *_: None); os.kill({supervisor}, 15); time.sleep(0.5); "
    assert supervised(slow + "os.kill(os.getpid(), signal.SIGKILL)", restarts=3) == (ExitCode.PREEMPTED, [])


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


# Real tasks


def training_process(task: RunningTask) -> int:
    """The supervisor has started the starter, and that the training process."""
    (starter,) = children(task.process.pid)
    eventually(lambda: len(children(starter)) == 1, "the training process")
    return children(starter)[0]


def kill_in_its_pod(task: RunningTask, restart: int = 1) -> None:
    os.kill(training_process(task), signal.SIGKILL)
    assert task.until(Event.RESTARTED, restart=restart).fields["exit_code"] == KILLED


@pytest.mark.nightly
@pytest.mark.thorough
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


@pytest.mark.nightly
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
