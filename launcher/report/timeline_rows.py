"""The rows of the timeline as they are drawn: bars, markers, and how the task ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from launcher.lists_and_counts import listed
from launcher.report.amounts import MOST_NAMES, duration
from launcher.report.drawing import share
from launcher.report.pod_endings import ending
from launcher.report.task_groups import TaskGroup
from launcher.report.timeline import Segment, TaskTimeline
from launcher.status import Phase, RunStatus
from launcher.task_records.presentation import State

STATE_TEXTS: Final = {
    State.HELD: "no pod yet",
    State.PENDING: "waiting for a node",
    State.PULLING: "pulling the image",
    State.PREPARING: "preparing the container",
    State.STARTING: "starting the program",
    State.WAITING: "waiting for other tasks",
    State.READY: "idle",
    State.TRAINING: "training",
    State.SCORING: "waiting for checkpoints and scoring them",
    State.RUNNING: "running",
    State.FINISHING: "saving and exiting",
    State.DOWN: "down, to be restarted",
    State.STOPPED: "suspended",
}
"""In the order of the legend."""

_MARKS: Final = {
    "failed": "failed",
    "scored": "a checkpoint was scored",
    "released": "shut down by the chief",
}
_LEAST: Final = 0.05
"""Percent. A narrower bar is not drawn."""


@dataclass(frozen=True)
class Bar:
    """A segment as it is drawn; `left` and `width` in percent."""

    state: str
    left: float
    width: float
    text: str
    title: str


@dataclass(frozen=True)
class Marker:
    """A mark as it is drawn; `at` in percent."""

    kind: str
    at: float
    title: str


@dataclass(frozen=True)
class Row:
    """A row. `outcome` is a kind (`good`, `bad`, `plain` or `running`) and how the task ended or what it
    does. `open`: it goes on. `words` says all of the row as text, for screen readers. `tasks` are those whose
    row it is, as `worker-1`.
    """

    name: str
    detail: str
    bars: tuple[Bar, ...]
    markers: tuple[Marker, ...]
    outcome: tuple[str, str]
    open: bool
    words: str
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class Legend:
    """An entry of the legend: a state, or a `mark`."""

    state: str
    text: str
    mark: bool


def row(group: TaskGroup, begin: float, end: float, status: RunStatus) -> Row:
    """The row of a group, on a time axis from `begin` to `end`."""
    task, total = group.typical, end - begin
    segments = _merged(task.segments)
    markers = [
        Marker(m.kind, share(m.time - begin, total), f"{duration(m.time - begin)}: {m.text}")
        for m in task.marks
    ]
    if task.released is not None:
        at = task.released - begin
        markers.append(Marker("released", share(at, total), f"{duration(at)}: released"))
    return Row(
        name=_name(group),
        detail=_detail(group),
        bars=tuple(
            bar for bar in (_bar(segment, begin, total) for segment in segments) if bar.width >= _LEAST
        ),
        markers=tuple(markers),
        outcome=_outcome(task, status) if not group.mixed else ("plain", "various"),
        open=not status.ended and task.latest.phase in (Phase.RUNNING, Phase.PENDING),
        words=_words(segments, task, begin),
        tasks=tuple(f"{each.role}-{each.index}" for each in group.tasks),
    )


def legend(rows: Iterable[Row]) -> tuple[Legend, ...]:
    """The states and marks that occur in the rows."""
    rows = list(rows)
    seen = {bar.state for row in rows for bar in row.bars}
    marked = {marker.kind for row in rows for marker in row.markers}
    states = [Legend(state.value, text, False) for state, text in STATE_TEXTS.items() if state.value in seen]
    return (*states, *(Legend(kind, text, True) for kind, text in _MARKS.items() if kind in marked))


def _name(group: TaskGroup) -> str:
    if len(group.tasks) == 1:
        return group.typical.name
    indexes = sorted(task.index for task in group.tasks)
    ranges: list[list[int]] = []
    for index in indexes:
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    shown = [f"{first}" if first == last else f"{first}-{last}" for first, last in ranges]
    return f"{group.typical.role} {', '.join(shown[:2])}{', ...' if shown[2:] else ''}"


def _detail(group: TaskGroup) -> str:
    if len(group.tasks) == 1:
        return group.typical.latest.node if group.typical.latest.node not in ("", "localhost") else ""
    return f"{len(group.tasks):,} tasks" + (", various" if group.mixed else " alike")


def _merged(segments: Sequence[Segment]) -> list[Segment]:
    merged: list[Segment] = []
    for segment in segments:
        if merged and (merged[-1].state, merged[-1].attempt) == (segment.state, segment.attempt):
            notes = dict.fromkeys([*merged[-1].note.split(", "), *segment.note.split(", ")])
            merged[-1] = replace(merged[-1], end=segment.end, note=", ".join(filter(None, notes)))
        else:
            merged.append(segment)
    return merged


def _bar(segment: Segment, begin: float, total: float) -> Bar:
    length = duration(segment.end - segment.start)
    note = f" ({listed(segment.note.split(', '), MOST_NAMES)})" if segment.note else ""
    return Bar(
        segment.state.value,
        share(segment.start - begin, total),
        share(segment.end - segment.start, total),
        f"{segment.state.value} {length}",
        f"{STATE_TEXTS[segment.state]}{note}: {length}, from {duration(segment.start - begin)} on",
    )


def _outcome(task: TaskTimeline, status: RunStatus) -> tuple[str, str]:
    latest = task.latest
    if latest.phase is Phase.SUCCEEDED:
        return "good", "done" if task.released is None or task.role == status.primary.role else "released"
    if latest.deleted:
        return "plain", "stopped"
    if latest.phase is Phase.FAILED:
        return "bad", ending(latest)
    if status.ended:
        return "bad", "lost"
    if latest.phase is Phase.PENDING:
        return "plain", latest.reason or "pending"
    return "running", task.segments[-1].state.value if task.segments else "running"


def _words(segments: Sequence[Segment], task: TaskTimeline, begin: float) -> str:
    texts = [f"{STATE_TEXTS[segment.state]} {duration(segment.end - segment.start)}" for segment in segments]
    failures = [
        f"{mark.text} after {duration(mark.time - begin)}" for mark in task.marks if mark.kind == "failed"
    ]
    return "; ".join([", ".join(texts), *failures])
