"""The agreement of a collective's tasks on the boundaries between two executions at which all do something
together: read what is spread over them, or stop.
"""

from __future__ import annotations

import threading

import tensorflow as tf

from worker.collective import kv_store
from worker.collective.kv_store import ERRORS, forget, gather, get, put
from worker.task import Task

_REMEMBERED = 4
"""More halts than a task can be behind the others."""


class Halts:
    """A task names the boundary after the one at which it is. It continues only when every task knows, so no
    task is past it: no execution ends without all tasks.

    Every task must have the same boundaries.
    """

    def __init__(self, task: Task) -> None:
        self._index = task.rank
        self._peers = task.peers
        self._count = 1 + len(task.peers)
        self._name = kv_store.numbered("halts")
        """A run may train several times."""
        self._boundaries = 0
        self._known = 0
        self._agreed: list[tuple[int, str]] = []
        self._lock = threading.Lock()

    def watch(self) -> None:
        """Starts a thread that waits for boundaries to be named: to ask at each one would cost a message."""
        threading.Thread(target=self._wait, name="halts", daemon=True).start()

    def boundary(self) -> set[str]:
        """Must be called at each boundary. Returns what all tasks do here."""
        self._boundaries += 1
        with self._lock:
            here = {what for at, what in self._agreed if at <= self._boundaries}
            self._agreed = [each for each in self._agreed if each[0] > self._boundaries]
        return here

    def propose(self, what: str) -> None:
        """Has all tasks do `what` at the next boundary."""
        number = self._known
        while True:
            try:
                put(f"{self._name}/halt/{number}", f"{self._boundaries + 1} {what}")
                break
            except tf.errors.AlreadyExistsError:  # another task has proposed something
                get(f"{self._name}/halt/{number}/known/{self._index}")
                number += 1
        known = [f"{self._name}/halt/{number}/known/{index}" for index in range(self._count)]
        gather(known, self._peers, f"the tasks agreed on where to {what}")
        # One that is further back than that waits for no answer any more.
        if number >= _REMEMBERED:
            forget(f"{self._name}/halt/{number - _REMEMBERED}")

    def _wait(self) -> None:
        try:
            while True:
                at, what = get(f"{self._name}/halt/{self._known}").split()
                with self._lock:
                    self._agreed.append((int(at), what))
                put(f"{self._name}/halt/{self._known}/known/{self._index}", "yes")
                self._known += 1
        except ERRORS:
            return  # a task was lost; the training gets that error too

    def left(self) -> None:
        """Tells the first task, which hosts the service and must leave last, that this one is ready to."""
        put(f"{self._name}/left/{self._index}", "yes")
        if self._index == 0:
            for index in range(self._count):
                get(f"{self._name}/left/{index}")
