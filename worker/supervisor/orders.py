"""What commands ask of this task while it runs: see `contract.orders`."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from worker.contract import orders
from worker.contract.environment import Env
from worker.contract.task_names import task_file
from worker.supervisor.starter_client import StarterClient

_LISTENING_SECONDS = 10.0
"""Limit for a client to say what it wants."""
_LONGEST = 65536
"""Bytes of an order."""
_STACKS_SECONDS = 5.0
_SIGN_SECONDS = 1.0
"""Interval between two signs that an answer takes longer."""


class Orders:
    """Answers orders in threads. `starter` returns the present one.

    The main thread sets `trains`, whether the training process takes an order for a profile, and puts the
    answers to these into `profiled`.
    """

    def __init__(self, task: str, directory: str | None, starter: Callable[[], StarterClient]) -> None:
        self.trains = False
        self.profiled: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
        self._task = task
        self._directory = directory
        self._starter = starter
        self._profiling = threading.Lock()

    def listen(self) -> None:
        """Starts to listen; does nothing where the place is taken, as by a pod on the same host's network."""
        with contextlib.suppress(OSError):
            listener = self._listener()
            if listener is not None:
                threading.Thread(target=self._accept, args=(listener,), name="orders", daemon=True).start()

    def _listener(self) -> socket.socket | None:
        if Env.LOCAL not in os.environ:
            return socket.create_server(("127.0.0.1", orders.PORT))
        if self._directory is None:
            return None
        with orders.socket_path(self._directory) as path:
            Path(path).unlink(missing_ok=True)
            return socket.create_server(path, family=socket.AF_UNIX)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._answer, args=(connection,), name="order", daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, ValueError, AttributeError):
            connection.settimeout(_LISTENING_SECONDS)
            with connection.makefile("rb") as file:
                order = json.loads(file.readline(_LONGEST))
            connection.sendall(json.dumps(self._obey(order, connection)).encode() + b"\n")

    def _obey(self, order: Mapping[str, Any], connection: socket.socket) -> Mapping[str, Any]:
        if order.get("task") != self._task:
            # Pods on their host's network share one loopback.
            return _problem(f"{self._task} answers in its place")
        if order.get("order") == orders.STACKS:
            return self._stacks()
        if order.get("order") == orders.PROFILE:
            return self._profile(int(order.get("steps", 0)), connection)
        return _problem("this version of the runtime does not know what is asked of it")

    def _stacks(self) -> Mapping[str, Any]:
        child = self._starter().child
        if child is None:
            return _problem("it has no training process at the moment: it starts, or waits for others")
        if _state(child) in ("T", "t"):
            return _problem("its training process is stopped, by SIGSTOP or a debugger")
        if stacks := self._starter().stacks(_STACKS_SECONDS):
            return {"stacks": stacks}
        return _problem(
            f"its training process does not answer SIGUSR1 within {_STACKS_SECONDS:.0f} s: its program has a "
            f"handler of its own, or it waits in the kernel (state {_state(child)})"
        )

    def _profile(self, steps: int, connection: socket.socket) -> Mapping[str, Any]:
        """Leaves the order where the training process looks for it, and waits for its answer."""
        if self._directory is None or not self.trains:
            return _problem("it takes no steps of the runtime's loop at the moment")
        if not self._profiling.acquire(blocking=False):
            return _problem("another profile is taken at the moment")
        path = Path(task_file("profile", self._directory, self._task, self._task))
        child, number = self._starter().child, secrets.token_hex(4)
        try:
            unfinished = path.with_name(f"{path.name}.new")
            document = {"number": number, "steps": min(steps, orders.MOST_STEPS)}
            unfinished.write_text(json.dumps(document), encoding="utf-8")
            unfinished.replace(path)
            while True:
                # Before the answers: the last one comes before these change.
                over = self._starter().child != child or not self.trains
                with contextlib.suppress(queue.Empty):
                    while True:
                        answer = self.profiled.get(timeout=0.0 if over else _SIGN_SECONDS)
                        if answer.get("number") == number:
                            return answer
                if over:
                    return _problem("its training ended, or was interrupted, before the profile did")
                connection.sendall(b"\n")  # raises OSError once nobody waits for it
        finally:
            path.unlink(missing_ok=True)
            self._profiling.release()


def _problem(sentence: str) -> Mapping[str, Any]:
    return {"problem": sentence}


def _state(process: int) -> str:
    """Returns the process' state by proc(5), such as R, S, D or T; "?" where it is not known."""
    try:
        # pid (command) state ...; a command may contain spaces and brackets.
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "?"
