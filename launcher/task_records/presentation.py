"""How each record is shown: the one place that says it for the console, the logs, the report and JSON.

Whoever adds a record to `worker.contract.records` gives it a line in `PRESENTATION`; without one, the import
of this module fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal

from launcher.backends import precheck_outliers
from launcher.status import RunStatus
from launcher.task_records import record_sentences, task_devices
from worker.contract.records import (
    EVENTS,
    Checkpoint,
    Content,
    Devices,
    Doing,
    Done,
    Evaluation,
    Exported,
    Failed,
    GpuUse,
    Loaded,
    MembershipRecord,
    Notice,
    Prechecked,
    Predicted,
    Predicting,
    Progress,
    Ready,
    Record,
    Released,
    Restarted,
    Spent,
    Training,
    Waiting,
    WasReleased,
)

PROGRESS_SECONDS: Final = 5.0
"""Interval between two lines of progress, besides the epochs' ends, so that a log stays short."""

WAITING_SECONDS: Final = 15.0
"""Interval between two lines about what a task waits for."""

IDLE: Final = "idle"
"""The activity of a server that has no work yet."""

TRACING: Final = "tracing the first step"

_SHOWN: Final = 3
"""Number of names that are shown of the tasks that others wait for."""

Tone = Literal["plain", "good", "warning", "bad"]


class State(str, Enum):
    """What a task does. The values are CSS classes of the report, too."""

    HELD = "held"
    """The run was submitted, and the task has no pod yet."""
    PENDING = "pending"
    PULLING = "pulling"
    PREPARING = "preparing"
    STARTING = "starting"
    """The process runs and has written no record yet."""
    WAITING = "waiting"
    READY = "ready"
    """Its server is up, and the primary does not train."""
    TRAINING = "training"
    SCORING = "scoring"
    RUNNING = "running"
    """A script of the user's, which writes no records."""
    FINISHING = "finishing"
    DOWN = "down"
    """Between a failed pod and the next one."""
    STOPPED = "stopped"
    """Between a pod that was told to stop and the next one: a suspension."""


Choice = Callable[[Any, Any, float], bool]
"""Whether a record's content is written, after the one that was written last (None: none was) and so many
seconds after it.
"""


def _always(_new: Any, _old: Any, _seconds: float) -> bool:
    return True


def _never(_new: Any, _old: Any, _seconds: float) -> bool:
    return False


def _fails_or_works_again(new: Any, old: Any, _seconds: float) -> bool:
    return bool(new.problem) != bool(old is not None and old.problem)


@dataclass(frozen=True)
class Presentation:
    """How a record is shown. The functions get its content.

    `sentence` is one line. `logged`: whether a log that someone reads later has it, and `listed` the report's
    list of events; of `concerns`' tasks only, which also get role, index and the run. `begins` is the state
    of the task from then on (`is_evaluator` says of whom), None where it stays what it is, and `activity`
    what it does then, "" where the records of steps suffice. `document` is the field of `status -o json`.

    `once_for_role`: what one of its tasks says, a log has once. `in_place`: a view that moves has a place for
    it.
    """

    sentence: Callable[[Any], str]
    logged: Choice
    listed: Choice
    begins: Callable[[Any, bool], State | None]
    tone: Callable[[Any], Tone] = lambda _: "plain"
    activity: Callable[[Any, bool], str] = lambda _, is_evaluator: ""
    document: str = ""
    in_place: bool = False
    once_for_role: bool = False
    concerns: Callable[[Any, str, int, RunStatus], bool] = lambda *_: True


def _stays(_content: Any, _is_evaluator: bool) -> None:
    return None


def _finishes(_content: Any, _is_evaluator: bool) -> State:
    return State.FINISHING


def _activity_of_waiting(waiting: Waiting) -> str:
    if not waiting.tasks:
        return "connecting"
    more = f" and {len(waiting.tasks) - _SHOWN} more" if len(waiting.tasks) > _SHOWN else ""
    return f"waiting for {', '.join(waiting.tasks[:_SHOWN])}{more}"


PRESENTATION: Final[Mapping[type[Content], Presentation]] = {
    Doing: Presentation(
        sentence=lambda doing: doing.activity,
        logged=_never,
        listed=_never,
        begins=_stays,
        activity=lambda doing, _: doing.activity,
    ),
    Waiting: Presentation(
        sentence=record_sentences.waiting,
        logged=lambda new, old, seconds: (
            seconds >= WAITING_SECONDS or (new.tasks, new.reasons) != (old.tasks, old.reasons)
        ),
        # Of each attempt, the first one and those that say that all tasks answer.
        listed=lambda new, old, _: old is None or not new.tasks,
        begins=lambda waiting, _: State.WAITING if waiting.tasks else State.STARTING,
        activity=lambda waiting, _: _activity_of_waiting(waiting),
    ),
    Prechecked: Presentation(
        sentence=lambda prechecked: f"precheck: {precheck_outliers.ranges([prechecked])}",
        logged=_never,  # one line says it for all tasks
        listed=_never,
        begins=lambda *_: State.STARTING,
        activity=lambda *_: "measured what its node can do",
    ),
    Devices: Presentation(
        sentence=task_devices.describe,
        logged=lambda new, old, _: new != old,
        listed=_always,
        begins=_stays,
        tone=lambda devices: "bad" if devices.lacking else "plain",
        once_for_role=True,
        concerns=task_devices.is_news,
    ),
    Ready: Presentation(
        sentence=lambda _: "is ready",
        logged=_never,
        listed=_never,
        begins=lambda _, is_evaluator: State.SCORING if is_evaluator else State.READY,
        activity=lambda _, is_evaluator: "waiting for a checkpoint" if is_evaluator else IDLE,
    ),
    MembershipRecord: Presentation(
        sentence=record_sentences.membership,
        logged=_always,
        listed=_always,
        begins=_stays,
        document="membership",
    ),
    Training: Presentation(
        sentence=record_sentences.training,
        logged=_always,
        listed=_always,
        begins=lambda *_: State.TRAINING,
        activity=lambda *_: TRACING,
    ),
    Progress: Presentation(
        sentence=record_sentences.progress,
        logged=lambda new, _, seconds: new.epoch_end or seconds >= PROGRESS_SECONDS,
        listed=_never,
        begins=lambda progress, _: (
            State.FINISHING if progress.epoch_end and progress.epoch == progress.epochs else State.TRAINING
        ),
        document="progress",
        in_place=True,
    ),
    Checkpoint: Presentation(
        sentence=record_sentences.checkpoint,
        logged=_fails_or_works_again,
        listed=_fails_or_works_again,
        begins=_stays,
        tone=lambda checkpoint: "bad" if checkpoint.problem else "plain",
        document="checkpoint",
    ),
    Evaluation: Presentation(
        sentence=record_sentences.evaluation,
        logged=_always,
        listed=_never,
        begins=lambda _, is_evaluator: State.SCORING if is_evaluator else None,
        activity=lambda _, is_evaluator: "waiting for a checkpoint" if is_evaluator else "",
        document="evaluation",
        in_place=True,
    ),
    Loaded: Presentation(
        sentence=lambda loaded: f"loaded {loaded.checkpoint} from {loaded.path}",
        logged=_always,
        listed=_always,
        begins=lambda *_: State.SCORING,
    ),
    Predicting: Presentation(
        sentence=record_sentences.predicting,
        logged=lambda _new, _old, seconds: seconds >= PROGRESS_SECONDS,
        listed=_never,
        begins=lambda *_: State.RUNNING,
        in_place=True,
    ),
    Predicted: Presentation(
        sentence=lambda predicted: f"wrote the predictions to {record_sentences.predictions(predicted)}",
        logged=_always,
        listed=_always,
        begins=_finishes,
        tone=lambda _: "good",
    ),
    Exported: Presentation(
        sentence=lambda exported: f"exported the model to {exported.path}",
        logged=_always,
        listed=_always,
        begins=_finishes,
        tone=lambda _: "good",
        document="export",
    ),
    GpuUse: Presentation(
        sentence=record_sentences.gpu_use,
        logged=_never,
        listed=_never,
        begins=_stays,
    ),
    Spent: Presentation(
        sentence=record_sentences.spent,
        logged=_never,
        listed=_never,
        begins=_stays,
    ),
    Notice: Presentation(
        sentence=lambda notice: notice.message,
        logged=_always,
        listed=_always,
        begins=_stays,
        tone=lambda _: "warning",
    ),
    Failed: Presentation(
        sentence=lambda failed: f"failed: {failed.message}",
        logged=_always,
        listed=_always,
        begins=_finishes,
        tone=lambda _: "bad",
    ),
    Restarted: Presentation(
        sentence=lambda restarted: f"started again in its pod (restart {restarted.restart} there)",
        logged=_always,
        listed=_never,  # the report's list has the restart, with its cause
        begins=_stays,
    ),
    Released: Presentation(
        sentence=record_sentences.released, logged=_always, listed=_always, begins=_finishes
    ),
    WasReleased: Presentation(
        sentence=lambda released: f"released: {released.outcome}",
        logged=_never,
        listed=_never,
        begins=_finishes,
    ),
    Done: Presentation(sentence=lambda _: "done", logged=_never, listed=_never, begins=_finishes),
}

if PRESENTATION.keys() != EVENTS.keys():
    raise TypeError(f"PRESENTATION lacks or has too much: {PRESENTATION.keys() ^ EVENTS.keys()}")


def of(record: Record) -> Presentation | None:
    """Returns how the record is shown; None for an event of a later version."""
    return None if record.content is None else PRESENTATION[type(record.content)]


def describe(record: Record) -> str:
    """Returns the record as a sentence; "" for an event of a later version."""
    shown = of(record)
    return "" if shown is None else shown.sentence(record.content)
