"""Who trains together in an elastic collective, and when: the rule without sockets and processes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from worker.collective.elastic_generations import (
    BEGIN_SECONDS,
    END_SECONDS,
    LOST_SECONDS,
    READY_SECONDS,
    SETTLE_SECONDS,
    Generations,
)
from worker.contract.exit_codes import ExitCode
from worker.peers.elastic_identity import Identity

NOW = 100.0
LATER = NOW + SETTLE_SECONDS
STOP_SECONDS = 300.0
IDENTITY = Identity("1", "2.21.0", "abc", 0)


def new(least: int, most: int) -> Generations:
    return Generations(least, most, STOP_SECONDS, NOW)


def arrive(
    run: Generations, *tasks: tuple[str, int], now: float = NOW, identity: Identity | None = IDENTITY
) -> None:
    """The tasks connect, and each is ready."""
    for number, (role, index) in enumerate(tasks):
        name = f"{role}-{index}"
        run.joined(name, role, index, name, identity, now)
        run.ready(name, 1000 * (run.number + 2) + number)


def told(run: Generations, now: float) -> dict[str, str]:
    """What each member is told."""
    return {order.name: next(iter(order.message)) for order in run.look(now)}


@pytest.fixture
def run() -> Generations:
    """A run of two to four workers; three have come, and train."""
    generations = new(2, 4)
    arrive(generations, ("chief", 0), ("worker", 0), ("worker", 2), ("worker", 3))
    assert set(told(generations, LATER).values()) == {"start"}
    return generations


def test_it_begins_with_those_that_are_there_after_a_short_wait() -> None:
    run = new(2, 4)
    arrive(run, ("chief", 0), ("worker", 0))
    assert told(run, LATER + 60) == {}
    assert run.missing() == 1
    arrive(run, ("worker", 3), now=LATER + 60)
    assert told(run, LATER + 60) == {}, "others may be about to come"
    orders = {order.name: order.message["start"] for order in run.look(LATER + 60 + SETTLE_SECONDS)}
    assert orders["worker-3"] == {
        "cluster": {"chief": ["chief-0:1000"], "worker": ["worker-0:1001", "worker-3:1000"]},
        "task": {"type": "worker", "index": 1},
        "pods": {"chief": ["chief-0"], "worker": ["worker-0", "worker-3"]},
    }
    assert (run.number, run.workers, run.idle_since) == (0, (0, 3), None)


def test_nobody_waits_for_more_than_the_greatest_number() -> None:
    run = new(1, 2)
    arrive(run, ("chief", 0), ("worker", 0), ("worker", 1))
    assert len(told(run, NOW)) == 3


def test_nobody_starts_without_the_chief() -> None:
    run = new(1, 2)
    arrive(run, ("worker", 0), ("worker", 1))
    assert told(run, LATER) == {}


def test_who_comes_is_taken_in_when_the_others_have_stopped(run: Generations) -> None:
    arrive(run, ("worker", 1), now=LATER)
    assert told(run, LATER + SETTLE_SECONDS) == {}, "not before the first step"
    run.stepped("chief-0")
    assert told(run, LATER) == {}
    assert told(run, LATER + SETTLE_SECONDS) == {"chief-0": "stop"}
    assert told(run, LATER + SETTLE_SECONDS) == {}, "it is told once"
    for name in ("worker-0", "worker-2", "worker-3", "chief-0"):
        run.ended(name, ExitCode.PREEMPTED, LATER + 10)
        assert told(run, LATER + 10) == {}
        run.ready(name, 1)
    assert set(told(run, LATER + 10).values()) == {"start"}
    assert (run.number, run.workers) == (1, (0, 1, 2, 3))


def test_who_is_lost_is_done_without(run: Generations) -> None:
    run.gone("worker-2", LATER + 5)
    for name in ("worker-0", "worker-3", "chief-0"):
        run.ended(name, 75, LATER + 5.5)
        run.ready(name, 1)
    assert told(run, LATER + 6) == {}
    assert len(told(run, LATER + 5 + SETTLE_SECONDS)) == 3
    assert run.workers == (0, 3)


def test_a_process_that_was_killed_is_waited_for(run: Generations) -> None:
    """Its task is still there, and starts the next one in its pod."""
    run.ended("worker-2", 137, LATER + 5)
    for name in ("worker-0", "worker-3", "chief-0"):
        run.ended(name, 75, LATER + 5.5)
        run.ready(name, 1)
    assert told(run, LATER + 6) == {}
    run.ready("worker-2", 1)
    assert len(told(run, LATER + 6)) == 4


def test_a_task_that_does_not_get_ready_is_left_out(run: Generations) -> None:
    for name in ("worker-0", "worker-2", "worker-3", "chief-0"):
        run.ended(name, 75, LATER + 5)
        if name != "worker-2":
            run.ready(name, 1)
    assert told(run, LATER + 6) == {}
    assert len(told(run, LATER + 6 + READY_SECONDS)) == 3


def test_processes_that_wait_for_a_lost_one_are_ended_soon(run: Generations) -> None:
    run.gone("worker-2", LATER + 1)
    assert told(run, LATER + 1) == {}
    orders = told(run, LATER + 1 + BEGIN_SECONDS)
    assert orders == {"chief-0": "kill", "worker-0": "kill", "worker-3": "kill"}


def test_a_process_that_hangs_is_ended_when_its_generation_is_broken(run: Generations) -> None:
    run.stepped("chief-0")
    run.gone("worker-2", LATER + 5)
    run.ended("chief-0", 75, LATER + 5)
    run.ended("worker-3", 75, LATER + 5)
    assert told(run, LATER + 5) == {}
    assert told(run, LATER + 5 + LOST_SECONDS) == {"worker-0": "kill"}
    hung = LATER + 5 + LOST_SECONDS + END_SECONDS
    assert told(run, hung) == {"worker-0": "drop"}, "its supervisor hangs, too"
    run.gone("worker-0", hung)
    for name in ("chief-0", "worker-3"):
        run.ready(name, 1)
    arrive(run, ("worker", 1), now=LATER + 30)
    assert len(told(run, LATER + 60)) == 3


def test_a_chief_may_finish_its_checkpoint_when_a_worker_is_lost(run: Generations) -> None:
    run.stepped("chief-0")
    run.ended("worker-2", 137, LATER + 5)
    assert told(run, LATER + 5 + LOST_SECONDS) == {"worker-0": "kill", "worker-3": "kill"}
    assert told(run, LATER + 5 + END_SECONDS)["chief-0"] == "kill"


def test_each_may_say_itself_what_is_wrong_with_the_program(run: Generations) -> None:
    run.stepped("chief-0")
    run.ended("worker-2", ExitCode.PROGRAM_ERROR, LATER + 5)
    assert told(run, LATER + 5 + LOST_SECONDS) == {}


def test_a_checkpoint_is_waited_for_when_all_stop_in_order(run: Generations) -> None:
    """The chief uploads it; the task that was drained has left already."""
    run.stepped("chief-0")
    run.ended("worker-2", ExitCode.PREEMPTED, LATER + 5)
    run.gone("worker-2", LATER + 5)
    for name in ("worker-0", "worker-3"):
        run.ended(name, ExitCode.PREEMPTED, LATER + 5)
        run.ready(name, 1)
    assert told(run, LATER + 5 + 2 * END_SECONDS) == {}
    assert told(run, LATER + 5 + STOP_SECONDS) == {"chief-0": "kill"}


def test_nobody_stops_in_order_with_a_task_that_is_lost_meanwhile(run: Generations) -> None:
    run.stepped("chief-0")
    run.ended("worker-0", ExitCode.PREEMPTED, LATER + 5)
    run.gone("worker-2", LATER + 6)
    assert told(run, LATER + 6 + LOST_SECONDS) == {"worker-3": "kill"}
    assert told(run, LATER + 6 + END_SECONDS) == {"chief-0": "kill", "worker-3": "kill"}


def test_a_process_of_a_generation_before_this_chief_is_ended(run: Generations) -> None:
    run.joined("worker-1", "worker", 1, "worker-1", IDENTITY, LATER, strays=True)
    assert told(run, LATER) == {"worker-1": "kill"}
    assert told(run, LATER) == {}


@pytest.mark.parametrize(
    ("identity", "why"),
    [
        (None, "it does not say what it runs"),
        (replace(IDENTITY, tensorflow="2.20.0"), "it has TensorFlow 2.20.0, and the chief 2.21.0"),
        (replace(IDENTITY, program="def"), "its program differs from the chief's"),
        (replace(IDENTITY, gpus=2), "it has 2 GPUs, and the chief 0"),
        (replace(IDENTITY, run_id="2"), "it belongs to another run of this name"),
    ],
)
def test_who_does_not_fit_is_refused_and_the_others_go_on(
    run: Generations, identity: Identity | None, why: str
) -> None:
    run.stepped("chief-0")
    arrive(run, ("worker", 1), now=LATER, identity=identity)
    assert [tuple(order) for order in run.look(LATER)] == [("worker-1", {"refuse": why})]
    assert told(run, LATER + SETTLE_SECONDS) == {}


def test_too_few_wait_for_others(run: Generations) -> None:
    for worker in (0, 2):
        run.gone(f"worker-{worker}", LATER + 5)
    for name in ("worker-3", "chief-0"):
        run.ended(name, 75, LATER + 5)
        run.ready(name, 1)
    assert told(run, LATER + 600) == {}
    assert (run.missing(), run.idle_since) == (1, LATER + 600)


def test_at_the_end_those_that_wait_are_told(run: Generations) -> None:
    arrive(run, ("worker", 1), now=LATER + 1)
    for name in ("worker-0", "worker-2", "worker-3", "chief-0"):
        run.ended(name, 0, LATER + 2)
    assert told(run, LATER + 2) == {"worker-1": "done"}
