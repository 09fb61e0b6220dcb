"""How often a training is saved where the user says nothing."""

from __future__ import annotations

import pytest

from worker.checkpoints.interval import Costs, between_losses, in_memory, in_storage


def saves(cost: float, write: float = 0.0, number: int = 6) -> Costs:
    """Returns the costs of so many saves, of which the first one traces functions."""
    costs = Costs()
    for each in range(number):
        costs.add(cost if each else 100.0, write if each else 100.0)
    return costs


@pytest.mark.parametrize("cost", [0.0001, 0.01, 0.3, 2.0, 40.0])
@pytest.mark.parametrize("loss_seconds", [60.0, 3600.0, 1e6])
def test_saving_takes_at_most_one_percent_of_the_time(cost: float, loss_seconds: float) -> None:
    seconds = in_storage(saves(cost), loss_seconds)
    assert cost / seconds <= 0.01
    assert seconds >= 4.0
    assert cost / in_storage(saves(cost, number=3), loss_seconds) <= 0.05


def test_it_is_youngs_and_dalys_where_that_is_cheap() -> None:
    assert in_storage(saves(0.045, 0.1), 3600.0) == pytest.approx(18.0)
    assert in_storage(saves(0.045, 20.0), 3600.0) == 40.0, "written for half of the time at most"
    assert in_storage(saves(0.02, 0.1), 3600.0) == 4.0, "half a percent"


def test_what_the_first_save_of_an_attempt_costs_does_not_put_off_the_second() -> None:
    assert in_storage(saves(0.02, number=1), 3600.0) == 4.0
    assert in_storage(saves(0.3, number=2), 3600.0) == pytest.approx(6.0), "5% of the time"


def test_the_least_of_the_costs_counts() -> None:
    costs = saves(0.01, 0.2)
    costs.add(3.0, 9.0)
    assert (costs.cost_seconds, costs.write_seconds) == (0.01, 0.2), "the machine was busy"
    for _ in range(5):
        costs.add(3.0, 9.0)
    assert (costs.cost_seconds, costs.write_seconds) == (3.0, 9.0), "it is the model"


def test_the_time_between_losses_is_an_hour_until_some_have_come() -> None:
    assert between_losses(10.0, 0) == 3600.0
    assert between_losses(7200.0, 0) == 7200.0, "a run that has lived longer without any"
    assert between_losses(7200.0, 4) == 1800.0


def test_copies_in_memory_come_soon_after_a_start() -> None:
    assert in_memory(saves(0.0)) == 2.0
    assert in_memory(saves(0.03)) == pytest.approx(3.0), "1% of the time"
    assert in_memory(saves(0.06)) == pytest.approx(4.0), "a loss costs few seconds"
    assert in_memory(saves(0.15)) == pytest.approx(4.0), "a loss costs few seconds, for 4% of the time"
    assert in_memory(saves(0.2)) == pytest.approx(10.0), "2% of the time"
    assert in_memory(saves(0.08, number=2)) == 2.0, "a loss that follows soon costs two seconds"
    assert in_memory(saves(3.0, number=2)) == pytest.approx(60.0), "5% of the time"
    assert in_memory(saves(0.0, 7.0, number=2)) == 14.0, "never before the one before is written"
