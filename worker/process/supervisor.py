"""A process that watches a training process, and ends it when it falls silent.

TensorFlow waits for ever for a hung peer, inside an operation that holds Python's lock: no thread and
no signal handler of that process can end it, and faulthandler, which can, ends it with exit code 1.
So the process that the pod started forks before TensorFlow is imported. The child trains; the parent,
a few MB of standard library, reads the child's signs of life from a pipe. Silence ends the child, and the
parent leaves with the exit code that was agreed beforehand. If the parent is killed, so is the child.

The protocol is a dead man's switch. The child writes `Silence`, one JSON line: how long it may be silent
from now on, and what is to be said and done then. An empty line is a sign of life: the time starts again.
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
"""Seconds that are left of the pod's grace when the training process, which saves what it has, is killed."""
_LOOKS = 10
"""So often within a silence the supervisor makes sure that it runs itself."""
_STACKS_SECONDS = 0.5
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True)
class Silence:
    """After `seconds` without a sign of life: print a record with this `content`, leave with `exit_code`.

    With `blame`, a `Failed`'s message says which peers do not answer.
    """

    seconds: float
    content: Content
    exit_code: int
    blame: bool = False

    def to_json(self) -> str:
        """One line."""
        head = {"seconds": self.seconds, "exit_code": int(self.exit_code), "blame": self.blame}
        return json.dumps({**head, "event": EVENTS[type(self.content)], "fields": fields_of(self.content)})

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Silence:
        """Of `to_json`, read."""
        content = content_of(document["event"], document["fields"])
        assert content is not None  # noqa: S101 - for the type checker: parent and child are of one version
        return cls(document["seconds"], content, document["exit_code"], document["blame"])


def stalled(doing: str, seconds: float) -> Silence:
    """The usual one: a stall is a failure that another try may mend. `doing` continues "while "."""
    message = f"nothing moved for {seconds:.0f} s while {doing}"
    return Silence(seconds, Failed(message, "", ExitCode.RETRYABLE), ExitCode.RETRYABLE, blame=True)


def overtaken(other: Holder) -> Silence:
    """At once: two chiefs must not write to one model directory."""
    return Silence(0.0, Failed(message(other), "", ExitCode.RETRYABLE), ExitCode.RETRYABLE)


class Watch:
    """The child's side. Thread-safe, never raises, waits for nothing but the supervisor to read; with no pipe
    it does nothing.
    """

    def __init__(self, pipe: int | None = None) -> None:
        self._pipe = pipe
        self._spoke = 0.0
        self._lock = threading.Lock()

    def expect(self, silence: Silence) -> None:
        """From now on `silence` holds."""
        self._write(silence.to_json().encode() + b"\n", patient=True)

    def hold(self, lease: Lease) -> None:
        """From now on the supervisor renews `lease`; should it be lost, it ends the child."""
        self._write(json.dumps({"lease": lease.to_json()}).encode() + b"\n", patient=True)

    def attend(self, workers: Mapping[str, str]) -> None:
        """From now on the supervisor says when one of `workers` (pod name to address) is gone, or back."""
        self._write(json.dumps({"workers": workers}).encode() + b"\n", patient=True)

    def alive(self) -> None:
        """A sign of life. Cheap: at most ten a second are passed on."""
        now = time.monotonic()
        if now - self._spoke >= 0.1:
            self._spoke = now
            self._write(b"\n")

    def beat(self) -> None:
        """From now on a sign of life every second, for as long as Python runs at all."""

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
                        return  # signs of life are waiting to be read
                    select.select([], [self._pipe], [])


def supervise(
    train: Callable[[Watch], int],
    first: Silence,
    task: str,
    addresses: Mapping[str, str],
    grace: float = GRACE_SECONDS,
) -> NoReturn:
    """Runs `train` in a child process under watch and leaves with its exit code, or the agreed one.

    `first` holds until the child says otherwise. `addresses` (pod name to `host:port`) are the peers
    that a stall may be blamed on. `grace` is the pod's, in seconds. Forks: call it while the process has one
    thread.
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
            # Where this process was stopped itself (a frozen pod, a suspended machine), so was the child.
            heard += max(0.0, time.monotonic() - now - pause)
            if wakeup in ready:
                os.read(wakeup, 4096)
            if self._pipe in ready:
                data = os.read(self._pipe, 65536)
                if data:
                    heard = time.monotonic()
                    self._hear(data)
                else:
                    watched.remove(self._pipe)  # the child is leaving

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
        """In the lease's thread."""
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
        """On standard error: where a hang is, only the stacks can tell."""
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
        """The child's wait status once it has ended. As process 1 of a container it reaps orphans too."""
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
    """Has this process killed when its parent ends, however that ends."""
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
