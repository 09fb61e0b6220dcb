"""What a run says of its newest checkpoint, and of what a kill would cost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from launcher.status import Phase
from launcher.task_records import checkpoint_age
from worker.contract.records import EVENTS, Checkpoint, Content, Progress, Record, fields_of


def status(*contents: tuple[Content, float], phase: Phase = Phase.RUNNING) -> Any:
    records = [Record(EVENTS[type(each)], "r-chief-0", at, fields_of(each)) for each, at in contents]
    return SimpleNamespace(phase=phase, records={"r-chief-0": {record.event: record for record in records}})


def progress(epoch: int, step: int, steps: int | None = 100, ended: bool = False) -> tuple[Content, float]:
    return Progress(epoch, 3, step, steps, 10.0, 0.5, {}, ended), 120.0


@pytest.mark.parametrize(
    ("saved", "trained", "steps"),
    [
        ((1, 40), (2, 90), 50),
        ((1, 0), (2, 90), 90),
        ((0, 40), (2, 10), 70),
        ((2, 0), (2, 100), 0),
        ((1, 95), (2, 90), 0),  # the progress is older
    ],
)
def test_the_steps_since_the_checkpoint_are_at_stake(
    saved: tuple[int, int], trained: tuple[int, int], steps: int
) -> None:
    run = status((Checkpoint(*saved, 100.0, 30.0), 101.0), progress(*trained))
    assert checkpoint_age.at_stake(run, now=112.0) == (12.0, steps)
    text, bad = checkpoint_age.of_run(run, now=112.0) or ("", True)
    assert text.endswith(f"; a kill now would lose 12 s, {steps} steps")
    assert not bad


def test_in_the_same_epoch_steps_need_no_length_of_it() -> None:
    run = status((Checkpoint(1, 40, 100.0, 30.0), 101.0), progress(2, 90, steps=None))
    assert checkpoint_age.at_stake(run, now=112.0) == (12.0, 50)
    later = status((Checkpoint(0, 40, 100.0, 30.0), 101.0), progress(2, 90, steps=None))
    assert checkpoint_age.at_stake(later, now=112.0) == (12.0, None)


def test_time_in_which_nothing_is_trained_is_not_at_stake() -> None:
    run = status((Checkpoint(1, 40, 100.0, 30.0), 101.0), progress(2, 90))
    assert checkpoint_age.at_stake(run, now=400.0) == (20.0, 50)


def test_nothing_is_at_stake_when_the_last_one_is_saved() -> None:
    run = status((Checkpoint(3, 0, 100.0, 30.0), 101.0), progress(3, 100, ended=True))
    assert checkpoint_age.at_stake(run, now=112.0) == (0.0, 0)
    assert checkpoint_age.of_run(run, now=112.0) == ("newest checkpoint: epoch 3", False)
    over = status((Checkpoint(2, 7, 100.0, 30.0), 101.0), progress(3, 9), phase=Phase.SUSPENDED)
    assert checkpoint_age.at_stake(over, now=112.0) is None


def test_since_when_nothing_is_saved_is_said_with_the_reason() -> None:
    run = status((Checkpoint(0, 0, 0.0, 0.0, 1600.0, "no space"), 101.0), progress(1, 9))
    text, bad = checkpoint_age.of_run(run) or ("", False)
    assert text == "nothing is saved since 1970-01-01 00:26:40 UTC: no space; newest checkpoint: none"
    assert bad
    assert checkpoint_age.of_run(status(progress(1, 9))) is None


def test_a_copy_in_memory_outlives_the_loss_of_one_task() -> None:
    run = status((Checkpoint(1, 40, 100.0, 30.0, copied_every=2.0), 101.0), progress(2, 90))
    text, _ = checkpoint_age.of_run(run, now=112.0) or ("", True)
    copied = "a copy in memory every 2 s; a kill of all tasks now would lose 12 s, 50 steps"
    assert text == f"newest checkpoint: step 40 of epoch 2; {copied}"
    unsaved = status((Checkpoint(0, 0, 0.0, 0.0, copied_every=2.0), 101.0), progress(2, 90))
    assert checkpoint_age.of_run(unsaved, now=112.0) == (
        "newest checkpoint: none; a copy in memory every 2 s",
        False,
    )
