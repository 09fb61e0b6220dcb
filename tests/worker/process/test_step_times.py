"""Where the time of the steps goes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from worker.process import step_times
from worker.process.step_times import StepTimes


class Clock:
    """A clock that goes on as it is told."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(step_times, "time", made)
    return made


def parts(times: StepTimes) -> list[float]:
    totals = times.totals()
    return [totals[part] for part in ("input", "computing", "peers", "saving")]


def test_every_second_has_one_part(clock: Clock) -> None:
    times = StepTimes()
    clock.now += 7.0  # before the first step
    times.begin()
    clock.now += 1.0
    times.took(5, (0.25, 0.5))
    with times.saving():
        clock.now += 2.0
    clock.now += 1.0
    times.took(5, (0.0, 0.25))
    assert parts(times) == [0.25, 1.0, 0.75, 2.0]
    assert times.totals()["steps"] == 10


def test_an_evaluation_between_two_epochs_is_no_step(clock: Clock) -> None:
    times = StepTimes()
    times.begin()
    clock.now += 1.0
    times.took(5, (0.0, 0.0))
    clock.now += 30.0
    times.begin()
    clock.now += 1.0
    times.took(5, (0.0, 0.0))
    assert parts(times) == [0.0, 2.0, 0.0, 0.0]


def test_input_that_a_gpu_did_not_wait_for_cost_nothing(clock: Clock) -> None:
    """This process waits for its input ahead of a GPU, which is ten steps behind when the result is read."""
    times = StepTimes()
    times.begin()
    clock.now += 10.0
    times.took(100, (8.0, 0.0))
    times.read(1.0)
    assert parts(times)[:2] == [0.0, 10.0]
    clock.now += 10.0
    times.took(100, (8.0, 0.0))
    times.read(0.15)  # the last step alone
    assert parts(times)[:2] == [8.0, 12.0]


def test_it_is_told_once_a_second(clock: Clock) -> None:
    reports: list[Mapping[str, float]] = []
    times = StepTimes(reports.append)
    times.examples_per_step = 32.0
    times.begin()
    for _ in range(25):
        clock.now += 0.125
        times.took(1, (0.0, 0.0))
    assert [each["steps"] for each in reports] == [8, 16, 24]
    assert reports[0]["examples"] == 256.0
