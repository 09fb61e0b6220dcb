"""Where the time of the training's steps goes in this task."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

from worker.contract.records import PARTS

_TELL_SECONDS = 1.0


class StepTimes:
    """Sums since the process began, in seconds by `PARTS`. `tell` gets them about once a second, with the
    number of steps, and of their examples that this task has computed.
    """

    def __init__(self, tell: Callable[[Mapping[str, float]], None] = lambda _: None) -> None:
        self.examples_per_step: float = 0.0
        self._tell = tell
        self._steps = 0
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._has_steps = False
        """Whether it takes steps itself, and does not only give them out."""
        self._since = self._reported_at = time.monotonic()
        self._uncertain = (0, 0.0, 0.0)
        """Steps, seconds and waits for input since a result was last read."""

    def totals(self) -> dict[str, float]:
        """Returns the sums."""
        return {
            "steps": self._steps,
            "examples": self._steps * self.examples_per_step,
            **{part: round(self._seconds[part], 6) for part in (PARTS if self._has_steps else PARTS[-1:])},
        }

    def begin(self) -> None:
        """Begins to count, after what belongs to no step."""
        self._since = time.monotonic()

    def count(self, steps: int) -> None:
        """Counts `steps`, whoever has taken them."""
        self._steps += steps
        now = time.monotonic()
        if now - self._reported_at >= _TELL_SECONDS:
            self._reported_at = now
            self._tell(self.totals())

    def took(self, steps: int, waits: tuple[float, float]) -> None:
        """Counts `steps` of this task, which were begun where the last ones ended. `waits` are the seconds
        for which they have waited for their input, and for other tasks.
        """
        now = time.monotonic()
        passed, self._since = now - self._since, now
        for_input, for_peers = waits
        self._seconds["input"] += for_input
        self._seconds["peers"] += for_peers
        self._seconds["computing"] += max(0.0, passed - for_input - for_peers)
        before = self._uncertain
        self._uncertain = (before[0] + steps, before[1] + passed, before[2] + for_input)
        self._has_steps = True
        self.count(steps)

    def read(self, seconds: float) -> None:
        """The result of the last step was read, and came after so many `seconds`.

        A GPU works behind this process. Where it is more than two steps behind, it had work all the time,
        and what this process has waited for input meanwhile has cost nothing.
        """
        steps, passed, for_input = self._uncertain
        if steps and seconds > 2 * passed / steps:
            self._seconds["input"] -= for_input
            self._seconds["computing"] += for_input
        self._uncertain = (0, 0.0, 0.0)

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Counts the time in the block as that of a save."""
        began = time.monotonic()
        try:
            yield
        finally:
            passed = time.monotonic() - began
            self._seconds["saving"] += passed
            self._since += passed
