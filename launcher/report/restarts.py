"""Lanes -> the restarts: the task that caused each, and the time that it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from launcher.report.pod_endings import ending
from launcher.report.timeline import Lane, State
from launcher.status import Phase, TaskStatus
from worker.contract import ExitCode

SUSPECT_SECONDS: Final = 10.0
"""A task that failed within this time before the primary lost a task is taken as the one that it lost."""

WORKING: Final = frozenset({State.TRAINING, State.READY, State.SCORING, State.RUNNING})


@dataclass(frozen=True)
class Restart:
    """A task's next pod, which may be yet to come. The task was without one, or without work, from `failed`
    until `back` (None: still is).

    `name` is whom the fault is laid on and `why` how that one ended: the task itself, unless it says that it
    lost another. `stopped`: nothing failed, it was told to stop.
    """

    lane: Lane
    attempt: int
    failed: float
    back: float | None
    name: str
    why: str
    stopped: bool = False


def restarts(lanes: Sequence[Lane]) -> list[Restart]:
    """All of them, the primary's first, in the order of time."""
    return [restart for lane in lanes for restart in _of_lane(lane, lanes)]


def _of_lane(lane: Lane, lanes: Sequence[Lane]) -> list[Restart]:
    found = []
    expected = lane.spans[-1].attempt if lane.spans else 0
    numbers = [attempt.attempt for attempt in lane.attempts[1:]]
    if expected > lane.latest.attempt:
        numbers.append(expected)
    for before, number in zip(lane.attempts, numbers, strict=False):
        failed = _end(before, lane)
        at_work = [s.start for s in lane.spans if s.attempt == number and s.state in WORKING]
        name, why = lane.name, ending(before)
        if not before.deleted and before.exit_code == ExitCode.RETRYABLE:
            name, why = _culprit(lanes, failed) or (name, why)
        back = min(at_work, default=None)
        found.append(Restart(lane, number, failed, back, name, why, before.deleted))
    return found


def _end(attempt: TaskStatus, lane: Lane) -> float:
    """Of a pod that is gone nobody knows it: the next one's beginning."""
    return attempt.finished or min((s.start for s in lane.spans if s.attempt > attempt.attempt), default=0.0)


def _culprit(lanes: Sequence[Lane], failed: float) -> tuple[str, str] | None:
    """The first task that ended shortly before, without saying that it had lost a task itself."""
    suspects = [
        (attempt.finished, lane.name, ending(attempt))
        for lane in lanes
        for attempt in lane.attempts
        if attempt.phase is Phase.FAILED
        and attempt.exit_code != ExitCode.RETRYABLE
        and attempt.finished is not None
        and failed - SUSPECT_SECONDS <= attempt.finished <= failed + 1
    ]
    return min(suspects)[1:] if suspects else None
