"""The number of steps in an execution: a fixed number, or one that is found by measuring.

The module uses neither TensorFlow nor a clock: its caller passes times in.
"""

from __future__ import annotations

from typing import Final

LIMIT_SECONDS: Final = 0.5
"""Upper limit of an execution's length: signs of life and SIGTERM wait for its end."""
_GROWTH = 1.05
_TIMES = 2
_PATIENCE = 2
_WARM_UP = 2


class Packing:
    """Gives the sizes of the executions, one after the other.

    With `fixed` every execution has that many steps. Otherwise the number begins at 1 and is doubled while
    that increases the throughput. Each number is tried twice, and the better time counts. The search
    continues for one doubling without an increase, so that one slow execution does not end it. The last
    execution of an epoch is shorter where the number does not divide the steps.

            while epoch has steps left:
                steps = packing.steps(left)
                ... run them ...
                packing.measured(steps, seconds)
            packing.epoch_ended()
    """

    def __init__(self, fixed: int | None = None) -> None:
        self._number = fixed or 1
        self._settled = fixed is not None
        # The first execution is traced, and the second may still fill buffers.
        self._warm_up = _WARM_UP
        self._times: list[float] = []
        self._best = (0.0, 1)
        self._without_gain = 0

    @property
    def number(self) -> int:
        """Returns the number of steps in a full execution, as far as it is known."""
        return self._number

    @property
    def settled(self) -> bool:
        """Returns whether `number` is final: no further execution needs to be measured."""
        return self._settled

    def steps(self, left: int) -> int:
        """Returns the number of steps in the next execution, where `left` remain in the epoch."""
        return min(self._number, left)

    def measured(self, steps: int, seconds: float) -> None:
        """Records that an execution of `steps` took `seconds`, until its results were there."""
        if self._settled or steps != self._number:
            return
        if self._warm_up:
            self._warm_up -= 1
            return
        self._times.append(max(seconds, 1e-9))
        if len(self._times) < _TIMES and seconds <= LIMIT_SECONDS:
            return
        fastest = min(self._times)
        self._times = []
        rate = steps / fastest
        if rate >= self._best[0] * _GROWTH:
            self._best = (rate, steps)
            self._without_gain = 0
        else:
            self._without_gain += 1
        if self._without_gain == _PATIENCE or 2 * fastest > LIMIT_SECONDS:
            self.agree(self._best[1], True)
        else:
            self._number *= 2

    def epoch_ended(self) -> None:
        """Ends the search after the first epoch that it could measure.

        If throughput was still growing, the number is what `LIMIT_SECONDS` allow at the best rate seen.
        """
        rate, number = self._best
        if self._settled or not rate:
            return
        if self._without_gain == 0:
            while 2 * number / rate <= LIMIT_SECONDS:
                number *= 2
        self.agree(number, True)

    def agree(self, number: int, settled: bool) -> None:
        """Takes over the decision of the task that measures."""
        self._number, self._settled = number, settled
