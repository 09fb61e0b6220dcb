"""Cuts the sums of `StepTimes` into windows, each of which is a record."""

from __future__ import annotations

from collections.abc import Mapping

from worker.contract.records import PARTS, Spent

_LEAST_SECONDS = 10.0
"""Of a window, so that a log stays short."""
_LEAST_STEPS = 5
_LEAST_SENDING = 0.1
"""In parts of the window."""


class SpentWindows:
    """Gets the sums of one training process."""

    def __init__(self) -> None:
        self._before: Mapping[str, float] = {}
        self._throttled = 0.0
        self._sending: Mapping[str, float] = {}

    def spend(
        self, sums: Mapping[str, float], throttled: float, sending: Mapping[str, float]
    ) -> Spent | None:
        """Returns the window that ends here; None where it goes on, and in a process that only gives steps
        out. `throttled` and those of `sending` (see `SendQueues`) are sums of seconds, too.
        """
        if not set(PARTS) <= sums.keys():
            return None
        before = self._before
        if not before:
            self._before, self._throttled, self._sending = sums, throttled, sending
            return None
        steps = int(sums["steps"] - before["steps"])
        seconds = {part: round(sums[part] - before[part], 6) for part in PARTS}
        total = sum(seconds.values())
        if steps < _LEAST_STEPS or total < _LEAST_SECONDS:
            return None
        waited = {name: round(value - self._sending.get(name, 0.0), 3) for name, value in sending.items()}
        waited = {name: value for name, value in waited.items() if value >= _LEAST_SENDING * total}
        spent = Spent(steps, seconds, round(max(0.0, throttled - self._throttled), 3), waited)
        self._before, self._throttled, self._sending = sums, throttled, sending
        return spent
