"""Decides whether a training process that has failed is started again in its pod. Pure."""

from __future__ import annotations

import signal

from worker.contract.exit_codes import ExitCode
from worker.contract.run_config import RESTART_SECONDS

_FIRST_OF_SIGNALS = 128


class Restarts:
    """Allows `limit` restarts within `RESTART_SECONDS`.

    An old restart is forgotten only once the task has come further since: a checkpoint is saved, or a server
    is up. A program that always fails at the same point, however late, uses up the limit. `now` is in seconds
    of a clock that does not go back.
    """

    def __init__(self, limit: int) -> None:
        self.count = 0
        """The restarts so far."""
        self._limit = limit
        self._recent: list[float] = []

    def allowed(self, code: int) -> bool:
        """Returns whether a process that has ended with `code` may be started again."""
        return is_retryable(code) and len(self._recent) < self._limit

    def add(self, now: float) -> None:
        """Counts a restart."""
        self.count += 1
        self._recent.append(now)

    def came_further(self, now: float) -> None:
        """Forgets the restarts that are old."""
        self._recent = [time for time in self._recent if now - time < RESTART_SECONDS]


def is_retryable(code: int) -> bool:
    """Returns whether a new process may succeed after this exit code: a task was lost, or a signal ended the
    process.
    """
    return code == ExitCode.RETRYABLE or _FIRST_OF_SIGNALS < code < _FIRST_OF_SIGNALS + signal.NSIG
