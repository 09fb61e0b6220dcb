"""However a run ends, all of its processes end: its tasks, and the processes that these have started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from launcher.errors import ConflictError
from launcher.status import Phase
from tests.local.machine import TIMEOUT, Machine, eventually, job, kill, linux_only, marked
from tests.paths import ROOT

pytestmark = linux_only

FAMILY = textwrap.dedent(
    """
    import os, signal, subprocess, sys, time
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    subprocess.Popen(sleep)
    subprocess.Popen(sleep, start_new_session=True)
    ignore = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", ignore], start_new_session=True)
    # A daemon as of old: its parent is gone, its session is its own, and its environment is empty.
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            code = "import time; time.sleep(600) # " + sys.argv[1]
            os.execve(sys.executable, [sys.executable, "-c", code], {})
        os._exit(0)
    print("up", flush=True)
    time.sleep(600)
    """
)
"""A task with a child, a child in its own session, a child that ignores SIGTERM, and a daemon."""

LAUNCHER = textwrap.dedent(
    """
    import json, sys
    from pathlib import Path
    from launcher.cli import live_view
    from launcher.backends.base import Plan
    from launcher.backends.local.backend import LocalBackend
    from launcher.errors import LauncherError
    backend = LocalBackend(Path(sys.argv[1]))
    objects = json.loads(sys.stdin.read())
    try:
        backend.submit(Plan("demo", "default", objects, []), detach=sys.argv[2] == "detach")
        if sys.argv[2] == "follow":
            sys.exit(live_view.watch(backend, "demo", "default", stop_on_interrupt=True))
    except LauncherError as error:
        sys.exit(str(error))
    """
)
"""The code of the command line for `submit`."""


def family(token: str, **spec: object) -> list[dict[str, object]]:
    command = ["python", "-c", FAMILY, token]
    return [
        job("chief", command, primary=True, **spec),  # type: ignore[arg-type]
        job("worker", command, replicas=2, **spec),  # type: ignore[arg-type]
    ]


def daemons(token: str) -> list[int]:
    """Returns the processes with an empty environment, found by an argument."""
    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                last = (entry / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")[-1]
            except OSError:
                continue
            if last.endswith(b"# " + token.encode()):
                processes.append(int(entry.name))
    return processes


class Family:
    """A run of three such tasks, and all of its processes."""

    def __init__(self, machine: Machine, token: str) -> None:
        self.machine = machine
        self.token = token

    def up(self) -> None:
        eventually(lambda: self.machine.directory().submission(), "the submission")
        eventually(lambda: self.machine.texts().count("up") == 3, "three tasks")
        eventually(lambda: len(daemons(self.token)) == 3, "three daemons")
        submission = self.machine.directory().submission()
        assert submission is not None
        self.uid = submission.uid
        assert len(marked(self.uid)) == 12

    def gone(self) -> None:
        eventually(lambda: not marked(self.uid), "the end of all marked processes")
        eventually(lambda: not daemons(self.token), "the end of all daemons")


@pytest.fixture
def relatives(machine: Machine, tmp_path: Path) -> Family:
    return Family(machine, str(tmp_path))  # its last part may be that of another test of this file


def launch(machine: Machine, mode: str, *objects: object) -> subprocess.Popen[str]:
    import json

    root = ROOT
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(machine.root), mode],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(objects))
    process.stdin.close()
    process.stdin = None
    return process


def test_delete(machine: Machine, relatives: Family) -> None:
    machine.submit(*family(relatives.token, grace=1))
    relatives.up()
    machine.backend.delete("demo", "default")
    assert marked(relatives.uid) == []
    assert daemons(relatives.token) == []


def test_a_task_that_ends_takes_its_own_along(machine: Machine) -> None:
    code = FAMILY.rpartition("time.sleep(600)")[0]
    wait = "import time; time.sleep(600)"
    machine.submit(job("chief", wait, primary=True), job("worker", ["python", "-c", code, "unmarked"]))
    eventually(lambda: machine.status().roles[1].phase is Phase.SUCCEEDED, "the worker's end")
    assert len(machine.processes()) == 1, "the chief alone"
    machine.backend.delete("demo", "default")
    eventually(lambda: not daemons("unmarked"), "the end of the daemon, with the run")


@pytest.mark.parametrize("victims", ["supervisor", "guard", "guard and supervisor"])
def test_kill_of_what_supervises(machine: Machine, relatives: Family, victims: str) -> None:
    machine.submit(*family(relatives.token, grace=1))
    relatives.up()
    guard, supervisor = machine.supervisor()
    if victims == "guard and supervisor":
        # Both are stopped first, so that neither sees the other's end.
        os.kill(guard, signal.SIGSTOP)
        os.kill(supervisor, signal.SIGSTOP)
    if "supervisor" in victims:
        kill(supervisor)
    if "guard" in victims:
        kill(guard)
    eventually(lambda: not machine.directory().alive(), "the lock's end")
    if victims == "guard and supervisor":
        # With both gone, processes outside of their task's session live until the next command.
        status = machine.status()
        assert status.phase is Phase.LOST
        machine.backend.delete("demo", "default")
        assert marked(relatives.uid) == []
        for pid in daemons(relatives.token):
            kill(pid)
        return
    if victims == "supervisor":
        assert marked(relatives.uid) == []
        assert daemons(relatives.token) == []
        status = machine.status()
        assert (status.phase, status.ended) == (Phase.LOST, True)
        assert "supervisor is gone" in status.message
        with pytest.raises(ConflictError):
            machine.backend.suspend("demo", "default")
    else:
        assert machine.end().reason == "Stopped"
        relatives.gone()
    machine.backend.delete("demo", "default")
    assert machine.backend.runs() == []


def test_a_lost_runs_name_can_be_used_again(machine: Machine) -> None:
    machine.submit(job("chief", "import time; print('up'); time.sleep(600)", primary=True))
    machine.printed("up")
    kill(machine.supervisor()[1])
    eventually(lambda: machine.status().phase is Phase.LOST, "the loss")
    assert machine.run(job("chief", "pass", primary=True)).phase is Phase.SUCCEEDED


def test_kill_of_the_launcher(machine: Machine, relatives: Family) -> None:
    launcher = launch(machine, "follow", *family(relatives.token, grace=1))
    relatives.up()
    launcher.kill()
    launcher.communicate(timeout=TIMEOUT)
    relatives.gone()
    status = machine.end()
    assert (status.phase, status.reason) == (Phase.FAILED, "Stopped")
    assert "the launcher that it belonged to is gone" in status.message


def test_kill_of_the_launcher_and_the_supervisor(machine: Machine, relatives: Family) -> None:
    launcher = launch(machine, "follow", *family(relatives.token, grace=1))
    relatives.up()
    _, supervisor = machine.supervisor()
    launcher.kill()
    kill(supervisor)
    launcher.communicate(timeout=TIMEOUT)
    relatives.gone()


def test_a_detached_run_outlives_its_launcher(machine: Machine, relatives: Family) -> None:
    launcher = launch(machine, "detach", *family(relatives.token, grace=1))
    output, _ = launcher.communicate(timeout=TIMEOUT)
    assert launcher.returncode == 0, output
    relatives.up()
    machine.backend.delete("demo", "default")
    relatives.gone()


def test_interrupted_once(machine: Machine, relatives: Family) -> None:
    launcher = launch(machine, "follow", *family(relatives.token, grace=1))
    relatives.up()
    launcher.send_signal(signal.SIGINT)
    output, _ = launcher.communicate(timeout=TIMEOUT)
    assert launcher.returncode == 130
    assert "is being stopped; Ctrl-C again kills it" in output
    assert "The run was stopped: interrupted" in output
    assert "Traceback" not in output
    relatives.gone()


def test_interrupted_twice(machine: Machine) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(600)"
    launcher = launch(machine, "follow", job("chief", code, primary=True, grace=600))
    eventually(lambda: machine.directory().submission(), "the submission")
    machine.printed("up")
    launcher.send_signal(signal.SIGINT)
    eventually(lambda: machine.status().tasks[0].deleted, "the stop")
    launcher.send_signal(signal.SIGINT)
    output, _ = launcher.communicate(timeout=TIMEOUT)
    assert launcher.returncode == 130
    assert "is killed" in output
    assert machine.processes() == []


def test_terminated(machine: Machine) -> None:
    launcher = launch(
        machine, "follow", job("chief", "import time; print('up'); time.sleep(600)", primary=True)
    )
    eventually(lambda: machine.directory().submission(), "the submission")
    machine.printed("up")
    launcher.terminate()
    launcher.communicate(timeout=TIMEOUT)
    assert launcher.returncode == 143
    assert machine.processes() == []
