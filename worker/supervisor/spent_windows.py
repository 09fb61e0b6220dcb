"""Cuts the sums of `StepTimes` into windows, each of which is a record."""

from __future__ import annotations

from collections.abc import Mapping

from worker.contract.records import PARTS, Spent

_LEAST_SECONDS = 10.0
"""Of a window, so that a log stays short."""
_LEAST_STEPS = 5


class SpentWindows:
    """Gets the sums of one training process."""

    def __init__(self) -> None:
        self._before: Mapping[str, float] = {}
        self._throttled = 0.0

    def spend(self, sums: Mapping[str, float], throttled: float) -> Spent | None:
        """Returns the window that ends here; None where it goes on, and in a process that only gives steps
        out. `throttled` is a sum of seconds, too.
        """
        if not set(PARTS) <= sums.keys():
            return None
        before = self._before
        if not before:
            self._before, self._throttled = sums, throttled
            return None
        steps = int(sums["steps"] - before["steps"])
        seconds = {part: round(sums[part] - before[part], 6) for part in PARTS}
        if steps < _LEAST_STEPS or sum(seconds.values()) < _LEAST_SECONDS:
            return None
        spent = Spent(steps, seconds, round(max(0.0, throttled - self._throttled), 3))
        self._before, self._throttled = sums, throttled
        return spent
