"""Executions on the workers of a ParameterServer run: a bounded number in flight, counted when done."""

from __future__ import annotations

import collections
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from worker.tf_compat import remote_values

_WAIT_SECONDS = 0.02
_FETCH_SECONDS = 0.0005
_AHEAD_SECONDS = 0.5
_LEAST, _MOST = 2, 64


@dataclass
class _Execution:
    steps: int
    value: Any
    report: Callable[[Any], None] | None


class Executions:
    """Schedules functions, and looks which are done without waiting for them.

    At most about half a second of work is scheduled ahead, so that the end of an epoch, a checkpoint and
    SIGTERM need not wait long. There are at least two executions for each worker, or one would wait for its
    next; `workers()` is their number at the moment. `moved` is called with the number of finished steps
    whenever some finish, `failed` with an error before it is raised.
    """

    def __init__(
        self,
        coordinator: Any,
        workers: Callable[[], int],
        moved: Callable[[int], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.coordinator = coordinator
        self._workers = workers
        self._moved = moved
        self._failed = failed
        self._pending: collections.deque[_Execution] = collections.deque()
        self._depth = _LEAST
        self._since = time.monotonic()
        self._finished = 0

    def schedule(
        self, function: Any, arguments: Any, steps: int = 0, report: Callable[[Any], None] | None = None
    ) -> None:
        """Waits for room, then has some worker run `function` at least once.

        `steps` is the number of steps in the execution. `report` is called later, in this thread, with the
        value that `function` returned. Raises the error of any function that was scheduled before.
        """
        while len(self._pending) >= self._depth * self._workers():
            self._wait()
        self._pending.append(_Execution(steps, self.coordinator.schedule(function, args=arguments), report))
        self._look()

    def wait(self) -> None:
        """Waits until the oldest execution is done, or for a moment. Raises the error of an execution."""
        if self._pending:
            self._wait()

    def join(self) -> float:
        """Waits until all executions are done. Returns for how many seconds the workers had nothing to do
        meanwhile, on average. Raises the error of an execution.
        """
        idle, since = 0.0, time.monotonic()
        while self._pending:
            workers = max(1, self._workers())
            busy = min(workers, len(self._pending))
            self._wait()
            now = time.monotonic()
            idle, since = idle + (now - since) * (1 - busy / workers), now
        self.coordinator.join()
        return idle

    def _wait(self) -> None:
        # get() would not notice the error of another execution.
        if remote_values.wait(self._pending[0].value, _WAIT_SECONDS):
            time.sleep(_FETCH_SECONDS)  # its value is being fetched, or is there
        self._look()
        # Raises an error that belongs to none of the values.
        self.coordinator.done()

    def _look(self) -> None:
        """Removes finished executions from the queue."""
        steps = 0
        waiting: collections.deque[_Execution] = collections.deque()
        for execution in self._pending:
            if not remote_values.is_done(execution.value):
                waiting.append(execution)
                continue
            error = remote_values.error_of(execution.value)
            if error is not None:
                if not isinstance(error, tf.errors.CancelledError):
                    # TensorFlow wraps an error that a dataset raised when a worker built it.
                    self._failed(getattr(error, "original_exception", error))
                self._pending.clear()
                self.coordinator.join()
                raise error
            self._finished += 1
            steps += execution.steps
            if execution.report is not None:
                execution.report(execution.value)
        finished = len(self._pending) - len(waiting)
        self._pending = waiting
        if finished:
            self._measure()
            self._moved(steps)

    def _measure(self) -> None:
        now = time.monotonic()
        seconds = now - self._since
        if seconds < _AHEAD_SECONDS:
            return
        ahead = self._finished / seconds * _AHEAD_SECONDS / self._workers()
        self._depth = max(_LEAST, min(_MOST, round(ahead)))
        self._since, self._finished = now, 0
