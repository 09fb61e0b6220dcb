"""Which task the others wait for, and why."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from launcher import sentences
from launcher.status import Phase
from launcher.task_records import bottlenecks
from launcher.task_records.bottlenecks import Bottleneck
from tests.unit.histories import BEGIN, history, pod, says
from worker.contract.records import Spent


def spent(
    own_input: float, computing: float, peers: float, saving: float = 0.0, throttled: float = 0.0
) -> Spent:
    """Returns the time of a hundred steps."""
    seconds = {"input": own_input, "computing": computing, "peers": peers, "saving": saving}
    return Spent(100, seconds, throttled)


def found(*times: Spent) -> Bottleneck | None:
    return bottlenecks.of_times({f"worker-{index}": each for index, each in enumerate(times)})


QUICK = spent(1.0, 4.0, 5.5)


@pytest.mark.parametrize(
    ("slow", "text"),
    [
        (spent(6.5, 4.0, 0.0), "takes 2.1 times the median step: its input"),
        (spent(1.0, 9.5, 0.0), "takes 2.1 times the median step: its computing"),
        (spent(1.0, 4.0, 0.0, 5.5), "takes 2.1 times the median step: its saving"),
        (
            spent(1.0, 9.5, 0.0, throttled=4.2),
            (
                "takes 2.1 times the median step: its computing, which its limit on CPU holds up for 40% of "
                "the time"
            ),
        ),
    ],
)
def test_the_task_that_waits_least_is_the_slow_one(slow: Spent, text: str) -> None:
    assert found(QUICK, slow, QUICK, QUICK) == ("worker-1", text, "")
    assert found(slow, QUICK) == ("worker-0", text, "")


@pytest.mark.parametrize(
    "times",
    [
        (),
        (spent(0.0, 0.0, 0.0),),
        (Spent(0, {"input": 5.0}, 0.0),),
        (spent(2.0, 8.0, 0.0),),
        (spent(1.0, 7.0, 2.0), spent(1.0, 8.0, 1.0)),  # not 1.5 times
        (spent(1.0, 7.0, 1.5), spent(1.0, 8.5, 0.0)),
        (spent(1.0, 5.0, 1.0), spent(1.0, 9.0, 0.0)),  # the other one waits for 14 % of its time
    ],
)
def test_what_does_not_stand_out_is_not_said(times: tuple[Spent, ...]) -> None:
    assert found(*times) is None


@pytest.mark.parametrize(
    ("times", "text"),
    [
        ((spent(8.4, 1.6, 0.0),), "84% of the time is waiting for input: data workers or prefetch"),
        ((spent(5.0, 4.0, 1.0), spent(4.0, 4.0, 2.0)), "45% of the time is waiting for input: data workers"),
        ((spent(1.0, 3.0, 6.0), spent(1.0, 3.5, 5.5)), "55% of each task's time is sums over the network"),
        ((spent(1.0, 5.0, 0.0, 4.0),), "40% of the time is saving: fewer checkpoints"),
    ],
)
def test_what_all_wait_for(times: tuple[Spent, ...], text: str) -> None:
    result = found(*times)
    assert result is not None
    assert (result.task, result.text[: len(text)]) == ("", text)


def sending(spent: Spent, to: str, seconds: float) -> Spent:
    return spent._replace(sending={to: seconds})


def test_a_connection_that_all_wait_for() -> None:
    """The one that sends seems to compute: nothing in a step says that it waits."""
    slow = sending(spent(0.0, 5.5, 5.0), "worker-0", 9.9)
    times = (spent(0.0, 0.2, 10.3), sending(spent(0.0, 2.9, 7.6), "worker-2", 1.0), slow)
    text = "has data waiting to be sent to worker-0 for 94% of the time: the network of one of these two"
    assert found(*times) == ("worker-2", text, "worker-0")


def test_a_network_that_is_slow_for_all_is_no_connection() -> None:
    times = [sending(spent(0.0, 2.0, 8.0), f"worker-{(number + 1) % 3}", 7.0) for number in range(3)]
    result = found(*times)
    assert result is not None
    assert "sums over the network" in result.text


def test_both_ends_of_a_connection_are_named_with_their_nodes() -> None:
    made = run((200.0, QUICK), (205.0, sending(QUICK, "mnist-worker-0", 9.0)))
    assert sentence(made, 206.0) == (
        "worker 1 on node n7 has data waiting to be sent to worker 0 on node n7 for 86% of the time: the "
        "network of one of these two"
    )


def run(*times: tuple[float, Spent], **more: Any) -> Any:
    """Returns a run of workers, whose records came at these times; the pods run since 100 s."""
    pods = [pod("worker", index, running=100.0, node="n7") for index in range(len(times))]
    lines = [
        says("worker", index, 0, at, "spent", **each._asdict()) for index, (at, each) in enumerate(times)
    ]
    return history(pods, lines, **more)


SLOW = spent(6.5, 4.0, 0.0)
SENTENCE = "worker 1 on node n7 takes 2.1 times the median step: its input"


def sentence(made: Any, now: float) -> str:
    return sentences.bottleneck(bottlenecks.of_run(made.status, BEGIN + now), made.status)


def test_a_run_says_it_in_one_sentence() -> None:
    made = run((200.0, QUICK), (205.0, SLOW))
    assert sentence(made, 206.0) == SENTENCE
    # Records are old after three windows of 10.5 s and 30 s.
    assert sentence(made, 261.0) == SENTENCE
    assert sentence(made, 262.0) == "62% of the time is waiting for input: data workers or prefetch"
    assert sentence(made, 300.0) == ""


def test_what_an_earlier_pod_has_said_does_not_count() -> None:
    assert sentence(run((98.0, QUICK), (98.0, SLOW)), 106.0) == ""


def test_a_run_that_does_not_train_now_says_nothing() -> None:
    assert sentence(run((200.0, QUICK), (205.0, SLOW), finished=206.0), 206.0) == ""
    suspended = SimpleNamespace(phase=Phase.SUSPENDED)
    assert bottlenecks.of_run(suspended, BEGIN) is None  # type: ignore[arg-type]


def test_the_records_of_a_whole_run_are_added_up() -> None:
    made = run((200.0, QUICK), (205.0, SLOW), finished=300.0)
    records = [line.record for line in made.lines]
    again = bottlenecks.of_records([*records, *records])
    assert sentences.bottleneck(again, made.status) == SENTENCE
