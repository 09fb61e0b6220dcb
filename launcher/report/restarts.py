"""Timelines -> the restarts: the task that caused each, and the time that it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from launcher.report.pod_endings import ending
from launcher.report.timeline import TaskTimeline
from launcher.status import Phase, TaskStatus
from launcher.task_records.presentation import State
from worker.contract.exit_codes import ExitCode

SUSPECT_SECONDS: Final = 10.0
"""A task that failed at most so long before another task reported a lost peer is taken as that peer."""

WORKING: Final = frozenset({State.TRAINING, State.READY, State.SCORING, State.RUNNING})


@dataclass(frozen=True)
class Restart:
    """A task is started again, by the pod with the number `attempt`. It did no work from `failed` until
    `back`, which is None as long as it does not work again.

    `name` is the task that caused the restart and `why` is how its pod ended. It is the task itself, unless
    that reported that it had lost another one. `stopped`: no pod failed, this one was told to stop.
    `in_place`: the pod is the same, and only its training process is another one.
    """

    task: TaskTimeline
    attempt: int
    failed: float
    back: float | None
    name: str
    why: str
    stopped: bool = False
    in_place: bool = False


def restarts(tasks: Sequence[TaskTimeline]) -> list[Restart]:
    """All restarts, task by task, the primary's first; those of a task in the order of time."""
    return [restart for task in tasks for restart in _of_task(task, tasks)]


def _of_task(task: TaskTimeline, tasks: Sequence[TaskTimeline]) -> list[Restart]:
    task_restarts = []
    # A segment without a pod of its own is that of a pod that is still to come.
    expected = task.segments[-1].attempt if task.segments else 0
    numbers = [attempt.attempt for attempt in task.attempts[1:]]
    if expected > task.latest.attempt:
        numbers.append(expected)
    in_place = {attempt.attempt for attempt in task.attempts if attempt.in_place}
    for before, number in zip(task.attempts, numbers, strict=False):
        failed = _end(before, task)
        at_work = [s.start for s in task.segments if s.attempt == number and s.state in WORKING]
        name, why = task.name, ending(before)
        if not before.deleted and before.exit_code == ExitCode.RETRYABLE:
            name, why = _cause(tasks, failed) or (name, why)
        back = min(at_work, default=None)
        task_restarts.append(
            Restart(task, number, failed, back, name, why, before.deleted, number in in_place)
        )
    return task_restarts


def _end(attempt: TaskStatus, task: TaskTimeline) -> float:
    """When the pod ended. Of a deleted one that is not known: then it is when the next pod was created."""
    return attempt.finished or min(
        (s.start for s in task.segments if s.attempt > attempt.attempt), default=0.0
    )


def _cause(tasks: Sequence[TaskTimeline], failed: float) -> tuple[str, str] | None:
    """The first task that failed shortly before, and did not report that it had lost another one itself."""
    suspects = [
        (attempt.finished, task.name, ending(attempt))
        for task in tasks
        for attempt in task.attempts
        if attempt.phase is Phase.FAILED
        and attempt.exit_code != ExitCode.RETRYABLE
        and attempt.finished is not None
        and failed - SUSPECT_SECONDS <= attempt.finished <= failed + 1
    ]
    return min(suspects)[1:] if suspects else None
