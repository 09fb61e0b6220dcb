"""What happened, in the order of time: from the tasks' pods and records, and from the cluster's events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from launcher import messages, task_devices
from launcher.backends.base import History, RunEvent
from launcher.report.amounts import counted, duration
from launcher.report.restarts import Restart
from launcher.report.timeline import Lane
from launcher.status import Phase
from worker.contract import (
    Devices,
    Event,
    Exported,
    Failed,
    Loaded,
    Notice,
    Predicted,
    Record,
    Released,
    Training,
    Waiting,
)

MOST: Final = 250
"""Shown. What is wrong comes first, then what came last."""

_ALIKE: Final = 4
"""So many events of one kind, about tasks of one role, are told as one."""

_TOLD: Final = (Training, Loaded, Notice, Exported, Predicted, Failed, Released)
_KINDS: Final = {
    Event.FAILED: "bad",
    Event.NOTICE: "warning",
    Event.EXPORTED: "good",
    Event.PREDICTED: "good",
}
_ENDS: Final = {
    Phase.SUCCEEDED: ("good", "has succeeded"),
    Phase.FAILED: ("bad", "has failed"),
    Phase.LOST: ("bad", "is lost"),
}


@dataclass(frozen=True)
class Happening:
    """`who` is a task, an object of the cluster, or the run. `kind` is `plain`, `good`, `warning` or `bad`;
    `cluster`: it is the cluster that says so.
    """

    time: float
    who: str
    kind: str
    text: str
    cluster: bool = False


def happenings(history: History, lanes: Sequence[Lane], restarts: Sequence[Restart]) -> list[Happening]:
    """All of them, oldest first."""
    found = [*_of_run(history), *_of_tasks(lanes), *_of_restarts(restarts), *_of_records(history)]
    found += _of_cluster(history.events, lanes)
    return sorted(found, key=lambda happening: happening.time)


def shortened(found: Sequence[Happening], most: int = MOST) -> list[Happening]:
    """At most so many of them, in their order."""
    if len(found) <= most:
        return list(found)
    ranked = sorted(
        range(len(found)), key=lambda number: (found[number].kind in ("warning", "bad"), number), reverse=True
    )
    return [found[number] for number in sorted(ranked[:most])]


def _of_run(history: History) -> Iterable[Happening]:
    status = history.status
    if history.submitted is not None:
        yield Happening(history.submitted, "run", "plain", "submitted")
    if status.ended and status.finished is not None and status.phase in _ENDS:
        kind, text = _ENDS[status.phase]
        yield Happening(
            status.finished, "run", kind, text + (f": {status.message}" if status.message else "")
        )


def _of_tasks(lanes: Sequence[Lane]) -> Iterable[Happening]:
    """The first start of a role, and every failure."""
    roles: dict[str, list[float]] = {}
    for lane in lanes:
        began = [attempt.running for attempt in lane.attempts if attempt.running is not None]
        roles.setdefault(lane.role, []).extend(began[:1])
        for attempt in lane.attempts:
            if attempt.phase is Phase.FAILED and not attempt.deleted and attempt.finished is not None:
                yield Happening(attempt.finished, lane.name, "bad", messages.ending(attempt))
    for role, times in roles.items():
        if times:
            spread = max(times) - min(times)
            text = f"{counted(len(times), 'task')} started"
            text += f", the last {duration(spread)} after the first" if spread >= 1 else ""
            yield Happening(min(times), role, "plain", text)


def _of_restarts(restarts: Sequence[Restart]) -> Iterable[Happening]:
    for restart in restarts:
        why = "it was told to stop" if restart.stopped else restart.why
        for attempt in restart.lane.attempts:
            if attempt.attempt == restart.attempt and attempt.running is not None:
                yield Happening(attempt.running, restart.lane.name, "warning", f"started again ({why})")


def _of_records(history: History) -> Iterable[Happening]:
    waited: set[tuple[str, int, int]] = set()
    for line in history.lines:
        record = line.record
        if record is None:
            continue
        name = messages.who(line.role, line.index, history.status)
        key = (line.role, line.index, line.attempt)
        content = record.content
        if isinstance(content, Waiting):
            # The first one, and the one that says that all answer.
            if content.tasks and key in waited:
                continue
            waited.add(key)
        elif isinstance(content, Devices):
            if not task_devices.is_news(content, line.role, line.index, history.status):
                continue
        elif not isinstance(content, _TOLD):
            continue
        yield Happening(record.time, name, _kind(record), messages.describe(record))


def _kind(record: Record) -> str:
    if task_devices.lacks(record):
        return "bad"
    return _KINDS.get(record.event, "plain")


def _of_cluster(events: Sequence[RunEvent], lanes: Sequence[Lane]) -> Iterable[Happening]:
    names = {f"{lane.role} {lane.index}": lane for lane in lanes}
    alike: dict[tuple[str, str, bool], list[RunEvent]] = {}
    for event in events:
        lane = names.get(event.about)
        alike.setdefault((lane.role if lane else event.about, event.reason, event.warning), []).append(event)
    for (about, _, _), group in alike.items():
        if len(group) > _ALIKE:
            first = group[0]
            told = _happening(first, about)
            yield replace(told, text=f"{told.text} (and {len(group) - 1:,} more of the kind)")
            continue
        for event in group:
            lane = names.get(event.about)
            yield _happening(event, lane.name if lane else event.about)


def _happening(event: RunEvent, about: str) -> Happening:
    times = f" ({event.count} times)" if event.count > 1 else ""
    kind = "warning" if event.warning else "plain"
    return Happening(event.time, about, kind, f"{event.reason}: {event.message}{times}", cluster=True)
