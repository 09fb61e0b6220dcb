"""Ctrl-C and SIGTERM while a command follows a run."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from launcher.errors import INTERRUPTED


class Interrupts:
    """Counts SIGINT and SIGTERM, so that no KeyboardInterrupt is raised at an arbitrary place."""

    def __init__(self) -> None:
        self.count = 0
        self._last = signal.SIGINT
        self._before: dict[signal.Signals, Any] = {}

    @property
    def exit_code(self) -> int:
        """Returns the exit code of a command that the last signal ends."""
        return INTERRUPTED if self._last is signal.SIGINT else 128 + self._last

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, _: FrameType | None) -> None:
        self.count += 1
        self._last = signal.Signals(number)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
