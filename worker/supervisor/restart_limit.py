"""Decides whether a training process that has failed is started again in its pod. Pure."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace

from worker.contract.exit_codes import ExitCode
from worker.contract.run_config import RESTART_SECONDS

_FIRST_OF_SIGNALS = 128
_AT_ONCE_SECONDS = 60.0
"""Where a signal has ended two processes in a row so soon, and they came no further, a third would end so:
a memory limit is too small, say. The pod ends, so that each retry of its Job is not `limit` restarts.
"""


@dataclass(frozen=True)
class Restarts:
    """Allows `limit` restarts within `RESTART_SECONDS`. `count` is their number so far.

    An old restart is forgotten only once the task has come further since: a checkpoint is saved, or a server
    is up. A program that always fails at the same point, however late, uses up the limit. A process that has
    come further and leaves because another task must, has not failed: that uses up nothing. `now` is in
    seconds of a clock that does not go back, as are the times of the `recent` restarts.
    """

    limit: int
    count: int = 0
    recent: tuple[float, ...] = ()
    is_further: bool = False
    """Whether the present process has come further."""
    fruitless: float | None = None
    """When the present process replaced one that a signal had ended before it came further."""

    def allowed(self, code: int, now: float) -> bool:
        """Returns whether a process that has ended with `code` may be started again: a new one may succeed
        where a task was lost, or a signal ended the process.
        """
        if self._costs_nothing(code):
            return self.limit > 0
        if _by_signal(code) and self.fruitless is not None and now - self.fruitless < _AT_ONCE_SECONDS:
            return False
        return (code == ExitCode.RETRYABLE or _by_signal(code)) and len(self.recent) < self.limit

    def _costs_nothing(self, code: int) -> bool:
        return code == ExitCode.PREEMPTED and self.is_further

    def added(self, code: int, now: float) -> Restarts:
        """Returns these and one more, of a process that has ended with `code`."""
        recent = self.recent if self._costs_nothing(code) else (*self.recent, now)
        fruitless = now if _by_signal(code) and not self.is_further else None
        return replace(self, count=self.count + 1, recent=recent, is_further=False, fruitless=fruitless)

    def came_further(self, now: float) -> Restarts:
        """Returns these without the recent ones that are old."""
        recent = tuple(time for time in self.recent if now - time < RESTART_SECONDS)
        return replace(self, recent=recent, is_further=True, fruitless=None)


def _by_signal(code: int) -> bool:
    return _FIRST_OF_SIGNALS < code < _FIRST_OF_SIGNALS + signal.NSIG
