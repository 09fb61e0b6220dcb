"""The current activity of a task, for its watchdog and for the message if the task fails."""

from __future__ import annotations

from worker.contract.records import Doing
from worker.process.watch import Watch, stalled
from worker.reporting import Reporter


class Activity:
    """`enter` names the activity, and restarts the time for which the task may be silent. Until the first
    step is done it also emits a record by `reporter`; after that, the records of the steps suffice.
    """

    def __init__(
        self, watch: Watch, reporter: Reporter, stall_seconds: float, starting_seconds: float
    ) -> None:
        self.doing = "starting"
        self._reporter: Reporter | None = reporter
        self._watch = watch
        self._stall_seconds = stall_seconds
        # The import of TensorFlow and the trace of the first step may take longer than any later step.
        self._seconds = max(stall_seconds, starting_seconds)

    def enter(self, doing: str) -> None:
        """Begins an activity. `doing` continues a sentence after "while "."""
        self.doing = doing
        self._watch.expect(stalled(doing, self._seconds))
        if self._reporter is not None:
            self._reporter.emit(Doing(doing))

    def stepped(self) -> None:
        """Says that the first step is done: from now on the limit is `stall_seconds`."""
        self._seconds = self._stall_seconds
        self._reporter = None
        self._watch.stepped()
        self.enter(self.doing)
