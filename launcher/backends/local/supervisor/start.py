"""Starts a guard, and gives it its order."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from launcher.backends.local.store import RunDirectory
from launcher.errors import BackendError

_TAKEN_SECONDS: Final = 60.0
"""How long a guard may take to answer; half a second on a machine that is busy."""


class WaitingGuard:
    """A guard without an order. It ends when this process does."""

    def __init__(self) -> None:
        """Raises BackendError when it cannot be started."""
        ours, theirs = socket.socketpair()
        self._orders = ours.detach()
        with tempfile.TemporaryFile() as errors:
            self._errors = os.dup(errors.fileno())
        script = str(Path(__file__).with_name("guard.py"))
        # Where it can import this package from, wherever it was started.
        holder = str(Path(__file__).resolve().parents[4])
        paths = [holder, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        with theirs:
            try:
                subprocess.run(
                    [sys.executable, script, str(theirs.fileno())],
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=self._errors,
                    start_new_session=True,
                    pass_fds=[theirs.fileno()],
                    check=True,
                )
            except (OSError, subprocess.CalledProcessError) as error:
                raise self._failure(str(error)) from error

    def give(
        self, directory: RunDirectory, lock: int, control: int, lifeline: int | None, *, allow_network: bool
    ) -> str:
        """The order: to run what is in the directory. Returns when the guard holds the lock too: why the run
        cannot have a network of its own, or "".

        The descriptors stay the caller's. Raises BackendError.
        """
        names = {"store": str(directory.store), "namespace": directory.namespace, "run": directory.run}
        order = {**names, "allow_network": allow_network}
        descriptors = [lock, control] if lifeline is None else [lock, control, lifeline]
        try:
            orders, self._orders = socket.socket(fileno=self._orders), -1
            with orders:
                orders.settimeout(_TAKEN_SECONDS)
                socket.send_fds(orders, [json.dumps(order).encode()], descriptors)
                answer = orders.recv(1024).decode(errors="replace")
        except OSError as error:
            raise self._failure(str(error)) from error
        if not answer:
            raise self._failure("it ended at once")
        return answer.partition(" ")[2]

    def __del__(self) -> None:
        for descriptor in (self._orders, self._errors):
            if descriptor >= 0:
                os.close(descriptor)

    def _failure(self, what: str) -> BackendError:
        printed = os.pread(self._errors, 1 << 16, 0).decode(errors="replace").strip()
        return BackendError(f"the run's supervisor cannot be started: {what}", printed)
