"""When a run was last saved, and what would be lost now."""

from __future__ import annotations

import time
from typing import NamedTuple

from launcher.status import Phase, RunStatus, latest, latest_with_time
from launcher.task_records import record_sentences
from worker.contract.records import Checkpoint, Progress


class AtStake(NamedTuple):
    """`seconds` of work, and `steps` where that is known, would be lost by a kill at this moment."""

    seconds: float
    steps: int | None


def at_stake(status: RunStatus, now: float | None = None) -> AtStake | None:
    """Returns None for a run that does not train now, or has not been saved yet."""
    checkpoint, progress = latest(status.records, Checkpoint), latest_with_time(status.records, Progress)
    if status.phase is not Phase.RUNNING or checkpoint is None or not checkpoint.taken or progress is None:
        return None
    newest, trained = progress
    begun = newest.epoch - 1 - checkpoint.epochs
    steps = (
        None
        if newest.steps is None and begun
        else begun * (newest.steps or 0) + newest.step - checkpoint.steps
    )
    if steps is not None and steps <= 0 and newest.epoch_end and newest.epoch == newest.epochs:
        return AtStake(0.0, 0)  # the last one is saved
    # Nothing was trained since then that could be lost: its tasks may be starting again.
    until = min(now or time.time(), trained)
    return AtStake(max(0.0, until - checkpoint.taken), None if steps is None else max(0, steps))


def of_run(status: RunStatus, now: float | None = None) -> tuple[str, bool] | None:
    """Returns a sentence, and whether it is bad: `checkpoint of step 340 of epoch 2, 12 s ago: a kill now
    would lose that time, 57 steps`. None in a run that has no checkpoints.
    """
    checkpoint = latest(status.records, Checkpoint)
    if checkpoint is None:
        return None
    text = record_sentences.checkpoint(checkpoint)
    lost = at_stake(status, now)
    if lost is None or not lost.seconds:
        return text, bool(checkpoint.problem)
    steps = "" if lost.steps is None else f", {lost.steps:,} steps"
    who = "a kill of all tasks now" if checkpoint.copied_every else "a kill now"
    return f"{text}; {who} would lose {lost.seconds:.0f} s{steps}", bool(checkpoint.problem)
