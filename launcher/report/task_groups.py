"""Many tasks -> few rows: tasks that did the same at about the same times share a row of the timeline."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Final

from launcher.report.timeline import Segment, TaskTimeline

_UNGROUPED: Final = 12
"""A role with at most so many tasks has a row for each."""

_MOST_ROWS: Final = 16
"""For a role with more tasks."""

_TOLERANCES: Final = (0.04, 0.2, 1.0)
"""By how much the segments of tasks in one group may differ, as shares of the run's time. The first tolerance
that gives few enough rows is taken."""


@dataclass(frozen=True)
class TaskGroup:
    """Tasks of one role that are drawn as one row, which shows the `typical` one. `mixed`: they differ, and
    share a row because there would be too many rows.
    """

    tasks: tuple[TaskTimeline, ...]
    typical: TaskTimeline
    mixed: bool = False


def grouped(tasks: Sequence[TaskTimeline], total: float) -> list[TaskGroup]:
    """One group or more for each role, in the order of the tasks. `total` is the run's time in seconds."""
    return [
        group
        for _, of_role in itertools.groupby(tasks, key=lambda task: task.role)
        for group in _of_role(tuple(of_role), total)
    ]


def _of_role(tasks: tuple[TaskTimeline, ...], total: float) -> list[TaskGroup]:
    if len(tasks) <= _UNGROUPED:
        return [TaskGroup((task,), task) for task in tasks]
    similar_tasks: list[list[TaskTimeline]] = []
    for tolerance in _TOLERANCES:
        similar_tasks = _alike(tasks, tolerance * total)
        if len(similar_tasks) <= _MOST_ROWS:
            break
    # The largest groups stay; the reader looks for rare behaviour, so the rest has a row, too.
    similar_tasks.sort(key=len, reverse=True)
    kept, rest = similar_tasks[: _MOST_ROWS - 1], similar_tasks[_MOST_ROWS - 1 :]
    if len(rest) == 1:
        kept, rest = similar_tasks, []
    groups = [TaskGroup(tuple(group), _typical(group)) for group in kept]
    groups.sort(key=lambda group: group.tasks[0].index)
    others = tuple(task for group in rest for task in group)
    return [*groups, TaskGroup(others, _typical(others), mixed=True)] if others else groups


def _alike(tasks: Sequence[TaskTimeline], tolerance: float) -> list[list[TaskTimeline]]:
    """Groups of tasks whose segments end within `tolerance` seconds of those of the group's first task."""
    groups_by_states: dict[object, list[tuple[list[float], list[TaskTimeline]]]] = {}
    for task in tasks:
        # Shorter segments can hardly be seen.
        seen = [segment for segment in task.segments if segment.end - segment.start >= tolerance / 2]
        ends = [segment.end for segment in seen]
        failures = tuple(mark.text for mark in task.marks if mark.kind == "failed")
        states = tuple((segment.state, segment.attempt) for segment in seen)
        groups = groups_by_states.setdefault((states, failures, task.latest.phase), [])
        for ends_of_first, group in groups:
            if all(abs(one - other) <= tolerance for one, other in zip(ends_of_first, ends, strict=True)):
                group.append(task)
                break
        else:
            groups.append((ends, [task]))
    return [group for groups in groups_by_states.values() for _, group in groups]


def _typical(tasks: Sequence[TaskTimeline]) -> TaskTimeline:
    """The task whose last segment began at the median time."""
    begins = [_last_begin(task.segments) for task in tasks]
    middle = median_low(begins)
    return next(task for task, begin in zip(tasks, begins, strict=True) if begin == middle)


def _last_begin(segments: Sequence[Segment]) -> float:
    return segments[-1].start if segments else 0.0
