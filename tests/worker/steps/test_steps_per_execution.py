"""The search for the number of steps in an execution, with a machine made of two numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from worker.steps.steps_per_execution import LIMIT_SECONDS, Packing


def machine(call: float, step: float) -> Callable[[int], float]:
    """Returns the seconds of an execution: `call` seconds for the call, and `step` seconds for each step."""
    return lambda steps: call + step * steps


def epoch(packing: Packing, steps: int, seconds: Callable[[int], float]) -> list[int]:
    """Runs an epoch, and returns the sizes of its executions."""
    sizes: list[int] = []
    while sum(sizes) < steps:
        count = packing.steps(steps - sum(sizes))
        sizes.append(count)
        packing.measured(count, seconds(count))
    packing.epoch_ended()
    return sizes


def test_steps_are_packed_until_the_call_costs_nothing_any_more() -> None:
    packing = Packing()
    seconds = machine(call=0.001, step=0.001)
    epoch(packing, 2000, seconds)
    assert packing.settled
    # With one step in a call the rate would be half of the greatest possible; this is nearly all of it.
    assert packing.number / seconds(packing.number) > 0.9 / 0.001
    assert seconds(packing.number) <= LIMIT_SECONDS
    assert epoch(packing, 2000, seconds)[0] == packing.number


def test_nothing_is_packed_where_it_gains_nothing() -> None:
    packing = Packing()
    epoch(packing, 200, machine(call=0.0, step=0.02))
    assert (packing.number, packing.settled) == (1, True)


@pytest.mark.parametrize("step", [0.3, 5.0])
def test_slow_steps_are_signs_of_life_each(step: float) -> None:
    packing = Packing()
    epoch(packing, 20, machine(call=0.1, step=step))
    assert packing.number == 1


def test_one_slow_execution_does_not_end_the_search() -> None:
    packing, seconds, calls = Packing(), machine(call=0.001, step=0.001), 0

    def disturbed(steps: int) -> float:
        nonlocal calls
        calls += 1
        return seconds(steps) + (0.05 if calls % 3 == 0 else 0.0)

    epoch(packing, 2000, disturbed)
    assert packing.number >= 8


def test_a_short_first_epoch_is_enough() -> None:
    packing = Packing()
    epoch(packing, 20, machine(call=0.001, step=0.001))
    assert packing.settled
    assert packing.number >= 20
    assert epoch(packing, 20, machine(call=0.001, step=0.001)) == [20]


def test_an_epoch_of_one_step_leaves_the_search_open() -> None:
    packing = Packing()
    epoch(packing, 1, machine(call=0.001, step=0.001))
    assert not packing.settled


def test_a_fixed_number_stays_and_the_last_execution_is_shorter() -> None:
    packing = Packing(8)
    assert packing.settled
    assert epoch(packing, 20, machine(call=9.0, step=9.0)) == [8, 8, 4]


def test_another_task_decides() -> None:
    packing = Packing()
    packing.agree(16, True)
    assert packing.steps(100) == 16
    assert packing.settled
