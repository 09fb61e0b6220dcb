"""The current activity of each task, by its newest record. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from launcher.status import Phase, RunStatus, TaskStatus, latest
from launcher.task_records.evaluator_outcome import EVALUATOR
from worker.contract.records import Doing, Evaluation, Event, Ready, Record, Training, Waiting

IDLE: Final = "idle"
"""The activity of a server that has no work yet."""

_TRACING: Final = "tracing the first step"

_SHOWN: Final = 3
"""Number of names that are shown of the tasks that others wait for."""


def of_role(status: RunStatus, role: str) -> str:
    """Returns the activity of most of the role's running tasks, such as `importing TensorFlow`; "" where
    their records have none, or the records of steps suffice.
    """
    trains = latest(status.records, Training) is not None
    found: dict[str, int] = {}
    for task in status.tasks:
        if task.role == role and task.phase is Phase.RUNNING:
            doing = of_task(task, status.records.get(task.name, {}))
            if doing == IDLE and trains:
                doing = ""  # it works for the primary
            found[doing] = found.get(doing, 0) + 1
    return max(found, key=lambda doing: found[doing], default="")


def of_task(task: TaskStatus, records: Mapping[str, Record]) -> str:
    """Returns the activity of one task. Records of an earlier pod do not count."""
    since = (task.running or task.started or 0.0) - 1.0  # Kubernetes' times are in whole seconds
    own = [record for record in records.values() if record.time >= since]
    newest = max(own, key=lambda record: record.time, default=None)
    events = {record.event: record.time for record in own}
    begun = events.get(Event.TRAINING, float("inf"))
    match newest.content if newest is not None else None:
        case Doing() if events.get(Event.PROGRESS, 0.0) < begun <= events[Event.DOING]:
            return _TRACING
        case Doing(activity=activity):
            return activity
        case Waiting(tasks=tasks) if tasks:
            more = f" and {len(tasks) - _SHOWN} more" if len(tasks) > _SHOWN else ""
            return f"waiting for {', '.join(tasks[:_SHOWN])}{more}"
        case Waiting():
            return "connecting"
        case Training():
            return _TRACING
        case Ready() if task.role != EVALUATOR:
            return IDLE
        case Ready() | Evaluation() if task.role == EVALUATOR:
            return "waiting for a checkpoint"
        case _:
            return ""
