"""What a run's tasks have last recorded, as their logs say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from launcher.backends.base import LogLine
from worker.contract.records import Event, Record

HEAD_BYTES: Final = 64 << 10
"""The beginning of a longer log, which has the records that a task writes once."""


_ONCE: Final = (Event.PRECHECKED, Event.DEVICES)


class LatestRecords:
    """The latest record of each event, by task."""

    def __init__(self) -> None:
        self.of_task: dict[str, dict[str, Record]] = {}

    def add(self, lines: Iterable[LogLine]) -> bool:
        """Whether there was a record among them."""
        changed = False
        for line in lines:
            if line.record is not None:
                self.of_task.setdefault(line.record.task, {})[line.record.event] = line.record
                changed = True
        return changed


def written_once(head: Iterable[LogLine]) -> list[LogLine]:
    """The records of a log's first HEAD_BYTES that its end does not repeat."""
    return [line for line in head if line.record is not None and line.record.event in _ONCE]
