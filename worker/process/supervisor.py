"""A process that watches a training process, and ends it when it is silent for too long.

TensorFlow waits for ever for a hung peer, inside an operation that holds Python's lock. No thread and no
signal handler of that process can end it; faulthandler can, but with exit code 1. So the process that the pod
started forks before TensorFlow is imported. The child trains. The parent, a few MB of standard library, reads
the child's signs of life from a pipe. If the child is silent for too long, the parent kills it and leaves
with the exit code that was agreed before. If the parent is killed, the child is killed too.

The protocol: the child writes `Silence`, one JSON line, which says how long it may be silent from now on, and
what the parent says and does after that. An empty line is a sign of life, and the time starts again.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

from worker.contract import (
    EVENTS,
    GRACE_SECONDS,
    Content,
    ExitCode,
    Failed,
    Notice,
    content_of,
    emit,
    fields_of,
)
from worker.process import probes
from worker.process.lease import Holder, Lease, message
from worker.process.worker_monitor import WorkerMonitor

_GRACE_MARGIN = 3.0
"""Seconds before the end of the pod's grace period at which the training process is killed, which saves its
position until then.
"""
_LOOKS = 10
"""Number of times within a silence at which the supervisor checks that it was not stopped itself."""
_STACKS_SECONDS = 0.5
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True)
class Silence:
    """The child may be silent for `seconds`. After that, the parent prints a record with this `content`, and
    leaves with `exit_code`.

    With `blame`, the message of a `Failed` names the peers that do not answer.
    """

    seconds: float
    content: Content
    exit_code: int
    blame: bool = False

    def to_json(self) -> str:
        """Returns one line."""
        head = {"seconds": self.seconds, "exit_code": int(self.exit_code), "blame": self.blame}
        return json.dumps({**head, "event": EVENTS[type(self.content)], "fields": fields_of(self.content)})

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Silence:
        """Reads the document of `to_json`."""
        content = content_of(document["event"], document["fields"])
        assert content is not None  # noqa: S101 - for the type checker: parent and child are of one version
        return cls(document["seconds"], content, document["exit_code"], document["blame"])


def stalled(doing: str, seconds: float) -> Silence:
    """Returns the Silence of most activities: a stall is a failure that a retry may fix. `doing` continues
    "while ".
    """
    message = f"nothing moved for {seconds:.0f} s while {doing}"
    return Silence(seconds, Failed(message, "", ExitCode.RETRYABLE), ExitCode.RETRYABLE, blame=True)


def overtaken(other: Holder) -> Silence:
    """Returns a Silence of no time: two chiefs must not write to one model directory."""
    return Silence(0.0, Failed(message(other), "", ExitCode.RETRYABLE), ExitCode.RETRYABLE)


class Watch:
    """The child's side of the protocol. It is thread-safe, never raises, and waits only for the supervisor to
    read. Without a pipe it does nothing.
    """

    def __init__(self, pipe: int | None = None) -> None:
        self._pipe = pipe
        self._spoke = 0.0
        self._lock = threading.Lock()

    def expect(self, silence: Silence) -> None:
        """Makes `silence` valid from now on."""
        self._write(silence.to_json().encode() + b"\n", patient=True)

    def hold(self, lease: Lease) -> None:
        """Has the supervisor renew `lease` from now on. If the lease is lost, the supervisor ends
        the child.
        """
        self._write(json.dumps({"lease": lease.to_json()}).encode() + b"\n", patient=True)

    def attend(self, workers: Mapping[str, str]) -> None:
        """Has the supervisor report from now on which of `workers` (pod name to address) are gone or back."""
        self._write(json.dumps({"workers": workers}).encode() + b"\n", patient=True)

    def alive(self) -> None:
        """Gives a sign of life. It is cheap: at most ten a second are sent."""
        now = time.monotonic()
        if now - self._spoke >= 0.1:
            self._spoke = now
            self._write(b"\n")

    def beat(self) -> None:
        """Gives a sign of life every second from now on, for as long as Python runs at all."""

        def beat() -> None:
            while True:
                self.alive()
                time.sleep(1.0)

        threading.Thread(target=beat, name="beat", daemon=True).start()

    def _write(self, data: bytes, patient: bool = False) -> None:
        if self._pipe is None:
            return
        with self._lock, contextlib.suppress(OSError):
            while data:
                try:
                    data = data[os.write(self._pipe, data) :]
                except BlockingIOError:
                    if not patient:
                        return  # the pipe is full of signs of life that the supervisor has yet to read
                    select.select([], [self._pipe], [])


def supervise(
    train: Callable[[Watch], int],
    first: Silence,
    task: str,
    addresses: Mapping[str, str],
    grace: float = GRACE_SECONDS,
) -> NoReturn:
    """Runs `train` in a child process under watch, and leaves with its exit code or the agreed one.

    `first` is valid until the child sends another Silence. `addresses` (pod name to `host:port`) are the
    peers that may cause a stall. `grace` is the pod's, in seconds. It forks, so it must be called while the
    process has one thread.
    """
    reading, writing = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.set_blocking(writing, False)
        _die_with(parent)
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        code = 1
        try:
            code = train(Watch(writing))
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    os.close(writing)
    os._exit(_Supervisor(child, reading, first, task, addresses, grace).run())


class _Supervisor:
    def __init__(
        self,
        child: int,
        pipe: int,
        first: Silence,
        task: str,
        addresses: Mapping[str, str],
        grace: float,
    ) -> None:
        self._child = child
        self._pipe = pipe
        self._silence = first
        self._task = task
        self._addresses = addresses
        self._term_seconds = max(0.0, grace - _GRACE_MARGIN)
        self._kill_at: float | None = None
        self._buffer = b""
        self._lease: Lease | None = None
        self._attendance = WorkerMonitor(lambda text: emit(task, Notice(text)))
        self._lost = False
        self._wake: int | None = None

    def run(self) -> int:
        wakeup, signalled = os.pipe()
        os.set_blocking(signalled, False)
        os.set_blocking(wakeup, False)
        self._wake = signalled
        signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._terminate)
        heard = time.monotonic()
        watched = [self._pipe, wakeup]
        while True:
            status = self._reap()
            if status is not None:
                code = self._left(status)
                if self._lease is not None and code != ExitCode.RETRYABLE:
                    self._lease.give_back()
                return code
            now = time.monotonic()
            if self._kill_at is not None and now >= self._kill_at:
                self._kill()
                return ExitCode.PREEMPTED
            if self._kill_at is None and now - heard >= self._silence.seconds:
                return self._silent()
            until = self._kill_at if self._kill_at is not None else heard + self._silence.seconds
            pause = max(0.0, min(until - now, max(0.1, self._silence.seconds / _LOOKS)))
            ready, _, _ = select.select(watched, [], [], pause)
            # If this process was stopped (a frozen pod, a suspended machine), so was the child.
            heard += max(0.0, time.monotonic() - now - pause)
            if wakeup in ready:
                os.read(wakeup, 4096)
            if self._pipe in ready:
                data = os.read(self._pipe, 65536)
                if data:
                    heard = time.monotonic()
                    self._hear(data)
                else:
                    watched.remove(self._pipe)  # the child is about to end

    def _hear(self, data: bytes) -> None:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            if not line:
                continue
            document = json.loads(line)
            if "lease" in document:
                self._lease = Lease.from_json(document["lease"])
                self._lease.keep(self._overtaken)
            elif "workers" in document:
                self._attendance.follow(document["workers"])
            elif not self._lost:
                self._silence = Silence.from_json(document)

    def _overtaken(self, other: Holder) -> None:
        """Runs in the lease's thread."""
        self._lost = True
        self._silence = overtaken(other)
        if self._wake is not None:
            os.write(self._wake, b"x")

    def _silent(self) -> int:
        silence = self._silence
        content = silence.content
        if silence.blame:
            found = probes.faults(self._addresses)
            if found and isinstance(content, Failed):
                no_answer = f"; no answer from {probes.described(found)}"
                content = Failed(content.message + no_answer, content.traceback, content.exit_code)
            self._show_stacks()
        self._kill()
        emit(self._task, content)
        return silence.exit_code

    def _show_stacks(self) -> None:
        """Prints all stacks to standard error: only they show where a process hangs."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGUSR1)
        time.sleep(_STACKS_SECONDS)

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        self._kill_at = self._kill_at or time.monotonic() + self._term_seconds
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGTERM)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._child, 0)

    def _reap(self) -> int | None:
        """Returns the child's wait status once it has ended. As process 1 of a container, it also reaps
        orphans.
        """
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return None
            if process == self._child:
                return status
            if process == 0:
                return None

    def _left(self, status: int) -> int:
        code = os.waitstatus_to_exitcode(status)
        if code >= 0:
            return code
        if self._kill_at is not None:
            return ExitCode.PREEMPTED
        message = f"the training process was ended by signal {-code} ({signal.strsignal(-code)})"
        if -code == signal.SIGKILL:
            message += "; if nobody sent it, the memory limit was reached: raise resources.limits.memory"
        emit(self._task, Failed(message, traceback="", exit_code=128 - code))
        return 128 - code


def _die_with(parent: int) -> None:
    """Has the kernel kill this process when its parent ends, for whatever reason."""
    if sys.platform == "linux":
        import ctypes

        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0:
            if os.getppid() != parent:
                os._exit(ExitCode.RETRYABLE)
            return

    def follow() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(ExitCode.RETRYABLE)

    threading.Thread(target=follow, name="follow", daemon=True).start()
