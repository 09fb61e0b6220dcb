"""Many lanes -> few rows: tasks that did the same at about the same times share one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Final

from launcher.report.timeline import Lane, Span

_EACH: Final = 12
"""A role with so few tasks has a row for each."""

_MOST_ROWS: Final = 16
"""Of a role with more."""

_TOLERANCES: Final = (0.04, 0.2, 1.0)
"""Of the whole time, by which the spans of one row may differ, in turn until the rows are few enough."""


@dataclass(frozen=True)
class Row:
    """Lanes of one role, drawn as one: `shown` is the one in their middle. `mixed`: they have little in
    common, and only stand together because there is no room.
    """

    lanes: tuple[Lane, ...]
    shown: Lane
    mixed: bool = False


def rows(lanes: Sequence[Lane], total: float) -> list[Row]:
    """A row or more for each role, in the lanes' order."""
    return [
        row
        for _, of_role in itertools.groupby(lanes, key=lambda lane: lane.role)
        for row in _of_role(tuple(of_role), total)
    ]


def _of_role(lanes: tuple[Lane, ...], total: float) -> list[Row]:
    if len(lanes) <= _EACH:
        return [Row((lane,), lane) for lane in lanes]
    groups: list[list[Lane]] = []
    for tolerance in _TOLERANCES:
        groups = _groups(lanes, tolerance * total)
        if len(groups) <= _MOST_ROWS:
            break
    # What is rare is what somebody looks for, but the many must be there too.
    groups.sort(key=len, reverse=True)
    kept, rest = groups[: _MOST_ROWS - 1], groups[_MOST_ROWS - 1 :]
    if len(rest) == 1:
        kept, rest = groups, []
    found = [Row(tuple(group), _middle(group)) for group in kept]
    found.sort(key=lambda row: row.lanes[0].index)
    others = tuple(lane for group in rest for lane in group)
    return [*found, Row(others, _middle(others), mixed=True)] if others else found


def _groups(lanes: Sequence[Lane], tolerance: float) -> list[list[Lane]]:
    """Each with its first lane as the measure."""
    found: dict[object, list[tuple[list[float], list[Lane]]]] = {}
    for lane in lanes:
        # States that last for less than the tolerance are hardly seen anyway.
        seen = [span for span in lane.spans if span.end - span.start >= tolerance / 2]
        ends = [span.end for span in seen]
        failures = tuple(mark.text for mark in lane.marks if mark.kind == "failed")
        states = tuple((span.state, span.attempt) for span in seen)
        alike = found.setdefault((states, failures, lane.latest.phase), [])
        for measure, group in alike:
            if all(abs(one - other) <= tolerance for one, other in zip(measure, ends, strict=True)):
                group.append(lane)
                break
        else:
            alike.append((ends, [lane]))
    return [group for alike in found.values() for _, group in alike]


def _middle(lanes: Sequence[Lane]) -> Lane:
    """The one that is as far on as half of the others."""
    ends = [_begin(lane.spans) for lane in lanes]
    middle = median_low(ends)
    return next(lane for lane, end in zip(lanes, ends, strict=True) if end == middle)


def _begin(spans: Sequence[Span]) -> float:
    """When the last of the spans began."""
    return spans[-1].start if spans else 0.0
