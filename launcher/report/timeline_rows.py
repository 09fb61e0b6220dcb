"""A row of the timeline: bars, marks, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from launcher.report.amounts import MOST_NAMES, duration
from launcher.report.drawing import share
from launcher.report.pod_endings import ending
from launcher.report.row_folding import Row
from launcher.report.timeline import Lane, Span, State
from launcher.status import Phase, RunStatus
from launcher.wording import listed

WORDS: Final = {
    State.HELD: "no pod yet",
    State.PENDING: "waiting for a node",
    State.PULLING: "pulling the image",
    State.PREPARING: "preparing the container",
    State.STARTING: "starting the program",
    State.WAITING: "waiting for other tasks",
    State.READY: "ready, without work",
    State.TRAINING: "training",
    State.SCORING: "waiting for checkpoints and scoring them",
    State.RUNNING: "running",
    State.FINISHING: "saving and leaving",
    State.DOWN: "down, to be started again",
    State.STOPPED: "stopped, to go on later",
}
"""In the order of the legend."""

_MARKS: Final = {
    "failed": "failed",
    "scored": "a checkpoint was scored",
    "released": "released by the chief",
}
_LEAST: Final = 0.05
"""Percent: what is narrower is not drawn."""


@dataclass(frozen=True)
class Bar:
    """A span; `left` and `width` in percent."""

    state: str
    left: float
    width: float
    text: str
    title: str


@dataclass(frozen=True)
class Pin:
    """A mark, `at` so many percent."""

    kind: str
    at: float
    title: str


@dataclass(frozen=True)
class Strip:
    """A row. `outcome` is how it stands, of the kind `good`, `bad`, `plain` or `running`; `words` tells the
    whole row without the picture.
    """

    name: str
    detail: str
    bars: tuple[Bar, ...]
    pins: tuple[Pin, ...]
    outcome: tuple[str, str]
    open: bool
    words: str


@dataclass(frozen=True)
class Legend:
    """A state that occurs, or a `mark`."""

    state: str
    text: str
    mark: bool


def strip(row: Row, begin: float, end: float, status: RunStatus) -> Strip:
    """The row, in a picture that shows the time from `begin` to `end`."""
    lane, total = row.shown, end - begin
    spans = _merged(lane.spans)
    pins = [
        Pin(m.kind, share(m.time - begin, total), f"{duration(m.time - begin)}: {m.text}") for m in lane.marks
    ]
    if lane.released is not None:
        at = lane.released - begin
        pins.append(Pin("released", share(at, total), f"{duration(at)}: released"))
    return Strip(
        name=_name(row),
        detail=_detail(row),
        bars=tuple(bar for bar in (_bar(span, begin, total) for span in spans) if bar.width >= _LEAST),
        pins=tuple(pins),
        outcome=_outcome(lane, status) if not row.mixed else ("plain", "various"),
        open=not status.ended and lane.latest.phase in (Phase.RUNNING, Phase.PENDING),
        words=_words(spans, lane, begin),
    )


def legend(strips: Iterable[Strip]) -> tuple[Legend, ...]:
    """The states and marks that are in the picture."""
    strips = list(strips)
    seen = {bar.state for strip in strips for bar in strip.bars}
    marked = {pin.kind for strip in strips for pin in strip.pins}
    states = [Legend(state.value, text, False) for state, text in WORDS.items() if state.value in seen]
    return (*states, *(Legend(kind, text, True) for kind, text in _MARKS.items() if kind in marked))


def _name(row: Row) -> str:
    if len(row.lanes) == 1:
        return row.shown.name
    indexes = sorted(lane.index for lane in row.lanes)
    ranges: list[list[int]] = []
    for index in indexes:
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    told = [f"{first}" if first == last else f"{first}-{last}" for first, last in ranges]
    return f"{row.shown.role} {', '.join(told[:2])}{', ...' if told[2:] else ''}"


def _detail(row: Row) -> str:
    if len(row.lanes) == 1:
        return row.shown.latest.node if row.shown.latest.node not in ("", "localhost") else ""
    return f"{len(row.lanes):,} tasks" + (", various" if row.mixed else " alike")


def _merged(spans: Sequence[Span]) -> list[Span]:
    found: list[Span] = []
    for span in spans:
        if found and (found[-1].state, found[-1].attempt) == (span.state, span.attempt):
            notes = dict.fromkeys([*found[-1].note.split(", "), *span.note.split(", ")])
            found[-1] = replace(found[-1], end=span.end, note=", ".join(filter(None, notes)))
        else:
            found.append(span)
    return found


def _bar(span: Span, begin: float, total: float) -> Bar:
    length = duration(span.end - span.start)
    note = f" ({listed(span.note.split(', '), MOST_NAMES)})" if span.note else ""
    return Bar(
        span.state.value,
        share(span.start - begin, total),
        share(span.end - span.start, total),
        f"{span.state.value} {length}",
        f"{WORDS[span.state]}{note}: {length}, from {duration(span.start - begin)} on",
    )


def _outcome(lane: Lane, status: RunStatus) -> tuple[str, str]:
    latest = lane.latest
    if latest.phase is Phase.SUCCEEDED:
        return "good", "done" if lane.released is None or lane.role == status.primary.role else "released"
    if latest.deleted:
        return "plain", "stopped"
    if latest.phase is Phase.FAILED:
        return "bad", ending(latest)
    if status.ended:
        return "bad", "lost"
    if latest.phase is Phase.PENDING:
        return "plain", latest.reason or "pending"
    return "running", lane.spans[-1].state.value if lane.spans else "running"


def _words(spans: Sequence[Span], lane: Lane, begin: float) -> str:
    told = [f"{WORDS[span.state]} {duration(span.end - span.start)}" for span in spans]
    failures = [
        f"{mark.text} after {duration(mark.time - begin)}" for mark in lane.marks if mark.kind == "failed"
    ]
    return "; ".join([", ".join(told), *failures])
