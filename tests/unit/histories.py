"""Histories of runs, as a backend returns them; times are seconds after `BEGIN`."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

from launcher.backends.base import History, LogLine, RunEvent
from launcher.status import Phase, RoleStatus, RunStatus, TaskStatus
from worker.contract.records import Record, line_of

BEGIN = 1_795_000_000.0
RUN = "mnist"


def pod(
    role: str,
    index: int = 0,
    attempt: int = 0,
    *,
    created: float = 0.0,
    started: float | None = None,
    running: float | None = None,
    finished: float | None = None,
    exit_code: int | None = None,
    **more: Any,
) -> TaskStatus:
    """Returns a pod. By default it is scheduled and runs when it is created."""
    phase = Phase.RUNNING if exit_code is None else Phase.FAILED if exit_code else Phase.SUCCEEDED
    begun = created if started is None else started
    return TaskStatus(
        **{
            "name": f"{RUN}-{role}-{index}",
            "role": role,
            "index": index,
            "attempt": attempt,
            "phase": phase,
            "exit_code": exit_code,
            "created": BEGIN + created,
            "started": BEGIN + begun,
            "running": BEGIN + (begun if running is None else running),
            "finished": None if finished is None else BEGIN + finished,
            **more,
        }
    )


def says(role: str, index: int, attempt: int, time: float, event: str, **fields: Any) -> LogLine:
    """Returns a line of a task's log in the form of a record; it is one if its fields are the event's."""
    text = line_of(event, f"{RUN}-{role}-{index}", BEGIN + time, fields)
    return LogLine(role, index, attempt, text, Record.parse(text))


def step(
    time: float, epoch: int, number: int, *, attempt: int = 0, role: str = "chief", **more: Any
) -> LogLine:
    """Returns a record of progress: ten steps an epoch, eight epochs."""
    fields = {
        "epoch": epoch,
        "epochs": 8,
        "step": number,
        "steps": 10,
        "steps_per_second": 5.0,
        "loss": 1 / epoch,
        "metrics": {"accuracy": 1 - 0.5 / epoch},
        "epoch_end": number == 10,
    }
    return says(role, 0, attempt, time, "progress", **{**fields, **more})


def event(time: float, about: str, reason: str, message: str = "", *, warning: bool = False) -> RunEvent:
    """Returns a Kubernetes event."""
    return RunEvent(BEGIN + time, about, warning, reason, message, 1)


def history(
    attempts: Sequence[TaskStatus],
    lines: Sequence[LogLine] = (),
    events: Sequence[RunEvent] = (),
    *,
    phase: Phase = Phase.SUCCEEDED,
    finished: float | None = None,
    seen: float = 1000.0,
    ended: bool | None = None,
    message: str = "",
) -> History:
    """Returns the history of a run with these pods, the primary role's first. The run ended at `finished`, if
    given.
    """
    latest: dict[tuple[str, int], TaskStatus] = {}
    for attempt in attempts:
        before = latest.get((attempt.role, attempt.index))
        latest[attempt.role, attempt.index] = dataclasses.replace(attempt, before=before)
    over = finished is not None if ended is None else ended
    now = phase if over else Phase.RUNNING
    counts = Counter(role for role, _ in latest) or {"chief": 1}
    roles = [
        RoleStatus(role, f"{RUN}-{role}", now, count, 0, 0, 0, 0, 0, message=message)
        for role, count in counts.items()
    ]
    records: dict[str, dict[str, Record]] = {}
    for line in lines:
        if line.record is not None:
            records.setdefault(line.record.task, {})[line.record.event] = line.record
    status = RunStatus(
        run=RUN,
        namespace="vision",
        phase=now,
        ended=over,
        reason="",
        message=message,
        roles=tuple(roles),
        tasks=tuple(latest.values()),
        started=BEGIN,
        finished=None if finished is None else BEGIN + finished,
        records=records,
    )
    return History(status, BEGIN + seen, BEGIN, attempts, lines, events)
