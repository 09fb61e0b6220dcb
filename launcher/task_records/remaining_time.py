"""The progress of a training, and the time that the rest takes. It has no state but the records
it was given.
"""

from __future__ import annotations

from worker.contract.records import Progress, Record, Training


class Pace:
    """The pace of one run: its epochs and steps as one fraction, and the seconds that the rest takes at the
    pace since its latest start. The first steps of a training trace graphs, so the pace counts from the first
    progress record.
    """

    def __init__(self) -> None:
        self.done = 0.0
        """A fraction from 0 to 1."""
        self._first: tuple[float, float] | None = None
        self._last: tuple[float, float] | None = None

    def add(self, record: Record) -> None:
        """Adds a record of any task, in the order in which the task printed it."""
        content = record.content
        if isinstance(content, Training):
            self._first = self._last = None
            self.done = min(1.0, content.initial_epoch / max(1, content.epochs))
        elif isinstance(content, Progress):
            # Steps that were done after the last backup are repeated, maybe without a new start record.
            again = self._last is not None and _fraction(content) < self.done
            self.done = _fraction(content)
            self._last = record.time, self.done
            if self._first is None or again:
                self._first = self._last

    def remaining(self, now: float) -> float | None:
        """Returns the seconds from `now` (since the epoch) to the last step; None as long as the pace is
        unknown.
        """
        if self._first is None or self._last is None:
            return None
        seconds, steps = (last - first for last, first in zip(self._last, self._first, strict=True))
        if seconds <= 0 or steps <= 0:
            return None
        left = (1.0 - self.done) * seconds / steps
        return max(0.0, left - max(0.0, now - self._last[0]))


def _fraction(progress: Progress) -> float:
    within = 1.0 if progress.epoch_end else 0.0
    if not progress.epoch_end and progress.steps:
        within = min(1.0, progress.step / progress.steps)
    return min(1.0, max(0.0, (progress.epoch - 1 + within) / max(1, progress.epochs)))
