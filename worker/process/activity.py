"""What a task is doing, for its watchdog and for the message should it fail there."""

from __future__ import annotations

from worker.process.supervisor import Watch, stalled


class Activity:
    """`enter` also restarts the time that the task may be silent."""

    def __init__(self, watch: Watch, stall_seconds: float, starting_seconds: float) -> None:
        self.doing = "starting"
        self._watch = watch
        self._stall_seconds = stall_seconds
        # Importing TensorFlow and tracing the first step may take longer than any step after it.
        self._seconds = max(stall_seconds, starting_seconds)

    def enter(self, doing: str) -> None:
        """`doing` continues a sentence after "while "."""
        self.doing = doing
        self._watch.expect(stalled(doing, self._seconds))

    def stepped(self) -> None:
        """The first step is done: from now on `stall_seconds` hold."""
        self._seconds = self._stall_seconds
        self.enter(self.doing)
