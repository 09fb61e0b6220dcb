"""The starter process and the training process, as the supervisor sees them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping
from typing import Any

from worker.supervisor import starter
from worker.supervisor.orphans import end_children


class StarterClient:
    """A starter. `process` is its process id, 0 once it has ended; `child` that of the training process while
    there is one. `signs` and `reports` are the descriptors to wait for.
    """

    def __init__(self, work: starter.Work, *, forked: bool) -> None:
        """A forked one is forked from this process, which must have one thread; else a new Python is one."""
        orders, self._orders = os.pipe()
        self.reports, reports = os.pipe()
        self.signs, signs = os.pipe()
        theirs = starter.Pipes(orders, reports, signs)
        parent = os.getpid()
        if forked:
            self.process = os.fork()
            if self.process == 0:
                for descriptor in (self._orders, self.reports, self.signs):
                    os.close(descriptor)
                starter.serve(work, theirs, parent)
        else:
            command = [*work.again, *map(str, theirs), str(parent)]
            # Popen would wait for its process, if it were not kept.
            self._popen = subprocess.Popen(command, pass_fds=theirs, env=dict(work.environment))
            self.process = self._popen.pid
        for descriptor in theirs:
            os.close(descriptor)
        os.set_blocking(self.signs, False)
        os.set_blocking(self.reports, False)
        self.child: int | None = None
        self.preloaded = False
        self._report_rest = self._sign_rest = b""

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

    def said(self) -> list[Any]:
        """Returns the documents that the training process has written: see `Watch`."""
        *lines, self._sign_rest = (self._sign_rest + read(self.signs)).split(b"\n")
        return [json.loads(line) for line in lines if line]

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the training process, if there is one."""
        if self.child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child, number)

    def kill(self) -> None:
        """Ends the training process, the starter, and what they have started."""
        self.send(signal.SIGKILL)
        if self.process:
            os.kill(self.process, signal.SIGKILL)  # its number is not used again before it is reaped
            os.waitpid(self.process, 0)
        end_children()

    def close(self) -> None:
        """Frees what is left of one that has ended."""
        for descriptor in (self._orders, self.reports, self.signs):
            os.close(descriptor)

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
