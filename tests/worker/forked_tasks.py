"""Tasks that are forked from a process which has imported TensorFlow: that import is half of the time of most
tests. The runtime starts its training processes so, too: worker/supervisor/starter.py.

`LAUNCHER_TEST_FRESH=1` starts each task as a pod does, by a Python of its own. `make thorough` sets it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol, TextIO

ROOT: Final = Path(__file__).resolve().parents[2]
_LARGEST: Final = 1 << 17
"""Bytes of a request: a task's environment."""
_AT_IMPORT: Final = ("TF_CPP", "TF_ENABLE", "CUDA", "GRPC", "KERAS", "LD_", "MALLOC", "OMP", "PYTHON", "XLA")
"""How the variables begin that count at the import, so that each value needs a process of its own."""


class Process(Protocol):
    """What the tests need of a process: `subprocess.Popen` has more."""

    pid: int
    stdout: Any

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def kill(self) -> None: ...


def printed(code: str, *arguments: str) -> str:
    """Returns what `python -c CODE ARGUMENTS` prints. It must end well."""
    return _output(None, code, *arguments)


def computed(code: str | Path, *arguments: object, keras: int = 2) -> Any:
    """Returns the JSON that `code`, or the program in a file, prints last, where tf.keras is of this version.
    It must end well.
    """
    if isinstance(code, Path):
        # From a file, whose source AutoGraph can read.
        arguments = (code, *arguments)
        code = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
    return json.loads(_output(keras, code, *map(str, arguments)).splitlines()[-1])


def _output(keras: int | None, code: str, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_USE_LEGACY_KERAS": "0" if keras == 3 else "1"}
    process = start(environment, Path.cwd(), 3 if keras == 3 else None, code, *arguments)
    with process.stdout as output:
        text = str(output.read())
    assert process.wait(60.0) == 0, text
    return text


def start(environment: Mapping[str, str], directory: Path, keras: int | None, *code: str) -> Process:
    """Starts `python -m worker`, or `python -c CODE`, with this environment in `directory`."""
    if os.environ.get("LAUNCHER_TEST_FRESH") == "1" or sys.platform != "linux":
        command = ["-c", *code] if code else ["-m", "worker"]
        return fresh([sys.executable, *command], environment, directory)
    variables = {name: value for name, value in environment.items() if name.startswith(_AT_IMPORT)}
    key = json.dumps([keras, sorted(variables.items())])
    with _lock:
        if key not in _parents:
            _parents[key] = _Parent(keras, environment)
        return _parents[key].start(environment, directory, code)


def fresh(command: Sequence[str], environment: Mapping[str, str], directory: Path) -> Process:
    """Starts a process of its own."""
    return subprocess.Popen(
        command,
        env=dict(environment),
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


class ForkedTask:
    """See `Process`. It is a child of another process, which tells how it ends."""

    def __init__(self, pid: int, stdout: TextIO) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self.has_ended = threading.Event()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self.has_ended.wait(timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, sig: int) -> None:
        # As Popen: one that has ended takes no signal.
        with contextlib.suppress(ProcessLookupError):
            if self.returncode is None:
                os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Parent:
    """The process that has imported TensorFlow."""

    def __init__(self, keras: int | None, environment: Mapping[str, str]) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "tests.worker.forked_tasks", str(theirs.fileno()), str(keras or 0)]
        self._process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=dict(environment), cwd=ROOT, stdout=subprocess.DEVNULL
        )
        theirs.close()
        atexit.register(self._process.kill)
        self._tasks: dict[int, ForkedTask] = {}
        self._started: list[int] = []
        self._changed = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    def start(self, environment: Mapping[str, str], directory: Path, code: Sequence[str] = ()) -> ForkedTask:
        output, theirs = os.pipe()
        asked = {"environment": dict(environment), "directory": str(directory), "code": code}
        request = json.dumps(asked).encode()
        assert len(request) < _LARGEST
        socket.send_fds(self._channel, [request], [theirs])
        os.close(theirs)
        with self._changed:
            if not self._changed.wait_for(lambda: self._started or self._process.poll() is not None, 120.0):
                raise AssertionError("no task was forked within two minutes")
            assert self._started, f"the import of TensorFlow ended with {self._process.returncode}"
            pid = self._started.pop()
            self._tasks[pid] = task = ForkedTask(pid, os.fdopen(output, encoding="utf-8"))
            self._changed.notify_all()
            return task

    def _listen(self) -> None:
        while message := self._channel.recv(_LARGEST):
            report = json.loads(message)
            with self._changed:
                pid = int(report["pid"])
                if "status" in report:
                    # One that ends at once may be told of before it is known.
                    while pid not in self._tasks:
                        self._changed.wait(1.0)
                    task = self._tasks.pop(pid)
                    task.returncode = os.waitstatus_to_exitcode(report["status"])
                    task.has_ended.set()
                else:
                    self._started.append(pid)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()


_lock = threading.Lock()
_parents: dict[str, _Parent] = {}


def _serve(channel: socket.socket) -> None:
    """Forks a task for each request, and tells how each ends, until nobody asks any more."""
    wakes, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([channel.fileno(), wakes], [], [])
        if wakes in ready:
            os.read(wakes, 1 << 12)
            while (ended := _reaped()) is not None:
                channel.send(json.dumps(ended).encode())
        if channel.fileno() in ready:
            request, descriptors, _, _ = socket.recv_fds(channel, _LARGEST, 1)
            if not request:
                return
            child = os.fork()
            if child == 0:
                for descriptor in (channel.fileno(), wakes, woken):
                    os.close(descriptor)
                _run(json.loads(request), *descriptors)
            os.close(*descriptors)
            channel.send(json.dumps({"pid": child}).encode())


def _reaped() -> dict[str, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return {"pid": pid, "status": status} if pid else None


def _run(request: Mapping[str, Any], output: int) -> NoReturn:
    """As a Python of its own."""
    import numpy as np

    code: Any = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["directory"])
        sys.path[0] = request["directory"]
        random.seed()
        np.random.seed()
        if request["code"]:
            text, *sys.argv[1:] = request["code"]
            exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})
        else:
            del sys.argv[1:]
            runpy.run_module("worker", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - as Python itself
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def main(descriptor: int, keras: int) -> None:
    from worker.runtime import prepare_environment

    prepare_environment(keras or None)
    import tensorflow as tf

    _ = tf.keras.Model  # imported at its first use
    # A task imports the runtime itself, and mends TensorFlow where it has to.
    for name in [name for name in sys.modules if name.partition(".")[0] == "worker"]:
        del sys.modules[name]
    _serve(socket.socket(fileno=descriptor))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
