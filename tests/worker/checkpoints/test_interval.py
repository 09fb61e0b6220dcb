"""How often a training is saved where the user says nothing."""

from __future__ import annotations

import pytest

from worker.checkpoints.interval import between_losses, in_memory, interval


@pytest.mark.parametrize("cost", [0.0001, 0.01, 0.3, 2.0, 40.0])
@pytest.mark.parametrize("loss_seconds", [60.0, 3600.0, 1e6])
def test_saving_takes_at_most_one_percent_of_the_time(cost: float, loss_seconds: float) -> None:
    seconds = interval(cost, 0.0, loss_seconds)
    assert cost / seconds <= 0.01
    assert seconds >= 5.0


def test_it_is_youngs_and_dalys_where_that_is_cheap() -> None:
    assert interval(0.02, 0.1, 3600.0) == pytest.approx(12.0)
    assert interval(0.02, 20.0, 3600.0) == 40.0, "written for half of the time at most"


def test_the_time_between_losses_is_an_hour_until_some_have_come() -> None:
    assert between_losses(10.0, 0) == 3600.0
    assert between_losses(7200.0, 0) == 7200.0, "a run that has lived longer without any"
    assert between_losses(7200.0, 4) == 1800.0


def test_copies_in_memory_come_soon_after_a_start() -> None:
    assert in_memory(0.0, 0.0) == 2.0
    assert in_memory(0.03, 0.0) == pytest.approx(3.0), "1% of the time"
    assert in_memory(0.06, 0.0) == pytest.approx(4.0), "a loss costs few seconds"
    assert in_memory(0.15, 0.0) == pytest.approx(4.0), "a loss costs few seconds, for 4% of the time"
    assert in_memory(0.2, 0.0) == pytest.approx(10.0), "2% of the time"
    assert in_memory(0.08, 0.0, is_new=True) == 2.0, "a loss that follows soon costs two seconds"
    assert in_memory(3.0, 0.0, is_new=True) == pytest.approx(60.0), "5% of the time"
    assert in_memory(0.0, 7.0, is_new=True) == 14.0, "never before the one before is written"
