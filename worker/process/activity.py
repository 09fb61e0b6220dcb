"""What a task is doing, for its watchdog and for the message should it fail there."""

from __future__ import annotations

from worker.contract import Doing
from worker.process.supervisor import Watch, stalled
from worker.reporting import Reporter


class Activity:
    """`enter` also restarts the time that the task may be silent, and tells `reporter`, until the first step
    is done: from then on the steps tell enough.
    """

    def __init__(
        self, watch: Watch, reporter: Reporter, stall_seconds: float, starting_seconds: float
    ) -> None:
        self.doing = "starting"
        self._reporter: Reporter | None = reporter
        self._watch = watch
        self._stall_seconds = stall_seconds
        # Importing TensorFlow and tracing the first step may take longer than any step after it.
        self._seconds = max(stall_seconds, starting_seconds)

    def enter(self, doing: str) -> None:
        """`doing` continues a sentence after "while "."""
        self.doing = doing
        self._watch.expect(stalled(doing, self._seconds))
        if self._reporter is not None:
            self._reporter.emit(Doing(doing))

    def stepped(self) -> None:
        """The first step is done: from now on `stall_seconds` hold."""
        self._seconds = self._stall_seconds
        self._reporter = None
        self.enter(self.doing)
