"""The report's list of events: from the tasks' pods and records, and from the cluster's events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from launcher import sentences
from launcher.backends.base import History, RunEvent
from launcher.lists_and_counts import counted
from launcher.report.amounts import duration
from launcher.report.restarts import Restart
from launcher.report.timeline import TaskTimeline
from launcher.status import Phase
from launcher.task_records import presentation
from worker.contract.records import Content

MOST: Final = 250
"""Events on the page. Of more, failures and warnings are kept first, then the latest."""

_MOST_ALIKE: Final = 4
"""More events of one reason than this, about tasks of one role, are shown as one."""

_END_TEXTS: Final = {
    Phase.SUCCEEDED: ("good", "has succeeded"),
    Phase.FAILED: ("bad", "has failed"),
    Phase.LOST: ("bad", "is lost"),
}


@dataclass(frozen=True)
class ReportEvent:
    """`who` is a task, an object of the cluster, or the run. `kind` is `plain`, `good`, `warning` or `bad`.
    `cluster`: it comes from the cluster's events.
    """

    time: float
    who: str
    kind: str
    text: str
    cluster: bool = False


def report_events(
    history: History, tasks: Sequence[TaskTimeline], restarts: Sequence[Restart]
) -> list[ReportEvent]:
    """All of them, oldest first."""
    events = [*_of_run(history), *_of_tasks(tasks), *_of_restarts(restarts), *_of_records(history)]
    events += _of_cluster(history.events, tasks)
    return sorted(events, key=lambda event: event.time)


def shortened(events: Sequence[ReportEvent], most: int = MOST) -> list[ReportEvent]:
    """The `most` important ones, in their order."""
    if len(events) <= most:
        return list(events)
    ranked = sorted(
        range(len(events)),
        key=lambda number: (events[number].kind in ("warning", "bad"), number),
        reverse=True,
    )
    return [events[number] for number in sorted(ranked[:most])]


def _of_run(history: History) -> Iterable[ReportEvent]:
    status = history.status
    if history.submitted is not None:
        yield ReportEvent(history.submitted, "run", "plain", "submitted")
    if status.ended and status.finished is not None and status.phase in _END_TEXTS:
        kind, text = _END_TEXTS[status.phase]
        yield ReportEvent(
            status.finished, "run", kind, text + (f": {status.message}" if status.message else "")
        )


def _of_tasks(tasks: Sequence[TaskTimeline]) -> Iterable[ReportEvent]:
    """The first start of a role, and every failure."""
    roles: dict[str, list[float]] = {}
    for task in tasks:
        began = [attempt.running for attempt in task.attempts if attempt.running is not None]
        roles.setdefault(task.role, []).extend(began[:1])
        for attempt in task.attempts:
            if attempt.phase is Phase.FAILED and not attempt.deleted and attempt.finished is not None:
                yield ReportEvent(attempt.finished, task.name, "bad", sentences.ending(attempt))
    for role, times in roles.items():
        if times:
            spread = max(times) - min(times)
            text = f"{counted(len(times), 'task')} started"
            text += f", the last {duration(spread)} after the first" if spread >= 1 else ""
            yield ReportEvent(min(times), role, "plain", text)


def _of_restarts(restarts: Sequence[Restart]) -> Iterable[ReportEvent]:
    for restart in restarts:
        why = "it was told to stop" if restart.stopped else restart.why
        for attempt in restart.task.attempts:
            if attempt.attempt == restart.attempt and attempt.running is not None:
                where = " in its pod" if restart.in_place else ""
                text = f"started again{where} ({why})"
                yield ReportEvent(attempt.running, restart.task.name, "warning", text)


def _of_records(history: History) -> Iterable[ReportEvent]:
    before: dict[tuple[str, int, int, str], tuple[Content | None, float]] = {}
    for line in history.lines:
        record = line.record
        shown = None if record is None else presentation.of(record)
        if record is None or shown is None:
            continue
        key = (line.role, line.index, line.attempt, record.event)
        content, (old, when) = record.content, before.get(key, (None, float("-inf")))
        concerns = shown.concerns(content, line.role, line.index, history.status)
        if concerns and shown.listed(content, old, record.time - when):
            before[key] = content, record.time
            name = sentences.who(line.role, line.index, history.status)
            yield ReportEvent(record.time, name, shown.tone(content), presentation.describe(record))


def _of_cluster(events: Sequence[RunEvent], tasks: Sequence[TaskTimeline]) -> Iterable[ReportEvent]:
    names = {f"{task.role} {task.index}": task for task in tasks}
    alike: dict[tuple[str, str, bool], list[RunEvent]] = {}
    for event in events:
        task = names.get(event.about)
        alike.setdefault((task.role if task else event.about, event.reason, event.warning), []).append(event)
    for (about, _, _), group in alike.items():
        if len(group) > _MOST_ALIKE:
            first = group[0]
            shown = _cluster_event(first, about)
            yield replace(shown, text=f"{shown.text} (and {len(group) - 1:,} more like it)")
            continue
        for event in group:
            task = names.get(event.about)
            yield _cluster_event(event, task.name if task else event.about)


def _cluster_event(event: RunEvent, about: str) -> ReportEvent:
    times = f" ({event.count} times)" if event.count > 1 else ""
    kind = "warning" if event.warning else "plain"
    return ReportEvent(event.time, about, kind, f"{event.reason}: {event.message}{times}", cluster=True)
