"""What earlier training processes of a pod have printed: the worker runtime starts them one after another."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from launcher.backends.base import LogLine
from worker.contract.records import Restarted


def of_earlier_processes(lines: Iterable[LogLine], tail: int | None) -> Iterator[LogLine]:
    """Yields the lines of a pod's log up to the last restart in place; at most the last `tail` of them."""
    kept: deque[LogLine] = deque(maxlen=tail)
    of_latest: list[LogLine] = []
    for line in lines:
        of_latest.append(line)
        if line.record is not None and isinstance(line.record.content, Restarted):
            kept.extend(of_latest)
            of_latest.clear()
    yield from kept
