"""The current activity of each task, by its newest record. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from launcher.status import Phase, RunStatus, TaskStatus, latest
from launcher.task_records import presentation
from launcher.task_records.evaluator_outcome import EVALUATOR
from worker.contract.records import Doing, Event, Record, Training

_MEASURED: Final = (Event.GPU_USE, Event.SPENT)
"""Comes at any time, and says nothing of what the task does."""


def of_role(status: RunStatus, role: str) -> str:
    """Returns the activity of most of the role's running tasks, such as `importing TensorFlow`; "" where
    their records have none, or the records of steps suffice.
    """
    trains = latest(status.records, Training) is not None
    counts: dict[str, int] = {}
    for task in status.tasks:
        if task.role == role and task.phase is Phase.RUNNING:
            doing = of_task(task, status.records.get(task.name, {}))
            if doing == presentation.IDLE and trains:
                doing = ""  # it works for the primary
            counts[doing] = counts.get(doing, 0) + 1
    return max(counts, key=lambda doing: counts[doing], default="")


def of_task(task: TaskStatus, records: Mapping[str, Record]) -> str:
    """Returns the activity of one task. Records of an earlier pod do not count."""
    since = (task.running or task.started or 0.0) - 1.0  # Kubernetes' times are in whole seconds
    pod_records = [
        record for record in records.values() if record.time >= since and record.event not in _MEASURED
    ]
    newest = max(pod_records, key=lambda record: record.time, default=None)
    shown = None if newest is None else presentation.of(newest)
    if newest is None or shown is None:
        return ""
    events = {record.event: record.time for record in pod_records}
    begun = events.get(Event.TRAINING, float("inf"))
    if isinstance(newest.content, Doing) and events.get(Event.PROGRESS, 0.0) < begun <= newest.time:
        return presentation.TRACING
    return shown.activity(newest.content, task.role == EVALUATOR)
