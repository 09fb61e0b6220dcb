"""The starter process and the training process, as the supervisor sees them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from worker.supervisor import starter
from worker.supervisor.orphans import end_children

_QUIET_SECONDS = 0.2
"""After so long without another line the stacks are complete: they have no end of their own."""
_LOOK_SECONDS = 0.02


class StarterClient:
    """A starter. `process` is its process id, 0 once it has ended; `child` that of the training process while
    there is one. `signs` and `reports` are the descriptors to wait for.
    """

    def __init__(self, work: starter.Work, *, forked: bool) -> None:
        """A forked one is forked from this process, which must have one thread; else a new Python is one."""
        orders, self._orders = os.pipe()
        self.reports, reports = os.pipe()
        self.signs, signs = os.pipe()
        asked, self._asks = os.pipe()
        # A file and no pipe: what writes the stacks must never wait for a reader.
        self._stacks = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by `close`
        theirs = starter.Pipes(orders, reports, signs, asked, self._stacks.fileno())
        parent = os.getpid()
        if forked:
            self.process = os.fork()
            if self.process == 0:
                for descriptor in (self._orders, self.reports, self.signs, self._asks):
                    os.close(descriptor)
                starter.serve(work, theirs, parent)
        else:
            command = [*work.again, *map(str, theirs), str(parent)]
            # Popen would wait for its process, if it were not kept.
            self._popen = subprocess.Popen(command, pass_fds=theirs, env=dict(work.environment))
            self.process = self._popen.pid
        for descriptor in (orders, reports, signs, asked):
            os.close(descriptor)
        os.set_blocking(self.signs, False)
        os.set_blocking(self.reports, False)
        self.child: int | None = None
        self.preloaded = False
        self._report_rest = self._sign_rest = b""
        self._showing = threading.Lock()

    def start(self, environment: Mapping[str, str]) -> None:
        """Orders a training process, with further variables in its environment."""
        self._sign_rest = b""  # of a process that was killed
        line = json.dumps(environment).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):  # it has ended
            while line:
                line = line[os.write(self._orders, line) :]

    def ended(self) -> int | None:
        """Returns the wait status of a training process that has ended. As process 1 of a container, this
        process also reaps orphans.
        """
        status = self._reported()
        while True:
            try:
                process, reaped = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if process == self.process:
                # With it the training process is killed, if it was not the same.
                self.process = 0
                status = status if status is not None else reaped
            if process == 0:
                break
        if status is not None:
            self.child = None
        return status

    def documents(self) -> list[Any]:
        """Returns the documents that the training process has written: see `Watch`. An empty line is one
        without fields.
        """
        *lines, self._sign_rest = (self._sign_rest + read(self.signs)).split(b"\n")
        return [json.loads(line or b"{}") for line in lines]

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the training process, if there is one."""
        if self.child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child, number)

    def stacks(self, seconds: float) -> str:
        """Returns the stacks of all threads of the training process, as faulthandler writes them. "" where
        there is no such process, or it does not answer within so many seconds.

        A thread of it writes them, but not while an operation holds Python's lock. Then the handler of a
        signal does, if the program has put no other in its place. At another time the handler would read what
        other threads change, and might end the process. Any thread may call it.
        """
        with self._showing:
            child, descriptor = self.child, self._stacks.fileno()
            if child is None:
                return ""
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)  # the training process writes at the same offset
            os.write(self._asks, b"\n")
            if text := self._written(seconds / 2):
                # The current thread is the one that writes.
                return "\n\n".join(
                    part for part in text.split("\n\n") if not part.startswith("Current thread")
                )
            if not _handles(child, signal.SIGUSR1):
                return ""
            self.send(signal.SIGUSR1)
            return self._written(seconds / 2)

    def _written(self, seconds: float) -> str:
        descriptor, size = self._stacks.fileno(), 0
        changed, until = time.monotonic(), time.monotonic() + seconds
        while (now := time.monotonic()) < until and not (size and now - changed > _QUIET_SECONDS):
            time.sleep(_LOOK_SECONDS)
            if (written := os.fstat(descriptor).st_size) != size:
                size, changed = written, time.monotonic()
        return os.pread(descriptor, size, 0).decode(errors="replace")

    def kill(self) -> None:
        """Ends the training process, the starter, and what they have started."""
        self.send(signal.SIGKILL)
        if self.process:
            os.kill(self.process, signal.SIGKILL)  # its number is not used again before it is reaped
            os.waitpid(self.process, 0)
        end_children()

    def close(self) -> None:
        """Frees what is left of one that has ended."""
        for descriptor in (self._orders, self.reports, self.signs, self._asks):
            os.close(descriptor)
        self._stacks.close()

    def _reported(self) -> int | None:
        """Reads the starter's reports. Returns the wait status of a training process that has ended."""
        *lines, self._report_rest = (self._report_rest + read(self.reports)).split(b"\n")
        status = None
        for line in lines:
            report = json.loads(line)
            if "preloaded" in report:
                self.preloaded = True
                continue
            self.child = report.get("started")
            status = report.get("ended", status)
        return status


def read(descriptor: int) -> bytes:
    """Returns all that is there now to read."""
    data = b""
    with contextlib.suppress(BlockingIOError):
        while part := os.read(descriptor, 65536):
            data += part
    return data


def _handles(process: int, number: signal.Signals) -> bool:
    """Returns whether the process has a handler for the signal, as it is taken for granted but on Linux."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return not Path("/proc/self/status").exists()
    caught = next((line.split()[1] for line in lines if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)
