"""Decides whether a training process that has failed is started again in its pod. Pure."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace

from worker.contract.exit_codes import ExitCode
from worker.contract.run_config import RESTART_SECONDS

_FIRST_OF_SIGNALS = 128


@dataclass(frozen=True)
class Restarts:
    """Allows `limit` restarts within `RESTART_SECONDS`. `count` is their number so far.

    An old restart is forgotten only once the task has come further since: a checkpoint is saved, or a server
    is up. A program that always fails at the same point, however late, uses up the limit. `now` is in seconds
    of a clock that does not go back, as are the times of the `recent` restarts.
    """

    limit: int
    count: int = 0
    recent: tuple[float, ...] = ()

    def allowed(self, code: int) -> bool:
        """Returns whether a process that has ended with `code` may be started again: a new one may succeed
        where a task was lost, or a signal ended the process.
        """
        by_signal = _FIRST_OF_SIGNALS < code < _FIRST_OF_SIGNALS + signal.NSIG
        return (code == ExitCode.RETRYABLE or by_signal) and len(self.recent) < self.limit

    def added(self, now: float) -> Restarts:
        """Returns these and one more."""
        return replace(self, count=self.count + 1, recent=(*self.recent, now))

    def came_further(self, now: float) -> Restarts:
        """Returns these without the recent ones that are old."""
        return replace(self, recent=tuple(time for time in self.recent if now - time < RESTART_SECONDS))
