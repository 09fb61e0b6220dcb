"""Converts the cluster's times to this machine's, if their clocks differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from launcher.backends.base import History, LogLine
from launcher.status import RunStatus, TaskStatus


def local_status(status: RunStatus, ahead: float) -> RunStatus:
    """The status with its times in this machine's time, which is `ahead` seconds ahead of the cluster's."""
    if not ahead:
        return status
    names = ("created", "started", "finished", "suspended")
    shift = {name: time + ahead for name in names if (time := getattr(status, name)) is not None}
    return dataclasses.replace(status, **shift)


def local_lines(lines: Iterable[LogLine], ahead: float) -> list[LogLine]:
    """The lines with their records' times in this machine's time. Notices have that already."""
    if not ahead:
        return list(lines)
    return [
        dataclasses.replace(line, record=dataclasses.replace(line.record, time=line.record.time + ahead))
        if line.record is not None and line.role != "run"
        else line
        for line in lines
    ]


def local_history(history: History, ahead: float) -> History:
    """The history with all its times in this machine's time."""
    if not ahead:
        return history
    return dataclasses.replace(
        history,
        status=local_status(history.status, ahead),
        seen=history.seen + ahead,
        submitted=None if history.submitted is None else history.submitted + ahead,
        attempts=[_local_task(attempt, ahead) for attempt in history.attempts],
        lines=local_lines(history.lines, ahead),
        events=[dataclasses.replace(event, time=event.time + ahead) for event in history.events],
    )


def _local_task(task: TaskStatus, ahead: float) -> TaskStatus:
    names = ("created", "started", "running", "finished")
    shift = {name: time + ahead for name in names if (time := getattr(task, name)) is not None}
    return dataclasses.replace(task, **shift)


def disagreement(ahead: float) -> str:
    """A sentence about clocks that are far apart."""
    minutes = abs(ahead) / 60
    amount = f"{minutes:.0f} min" if minutes >= 1 else f"{abs(ahead):.0f} s"
    word = "ahead of" if ahead > 0 else "behind"
    return f"this machine's clock is {amount} {word} the cluster's; times shown are this machine's"
