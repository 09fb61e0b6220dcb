"""Which task is far off from the others, by what they have measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from launcher import sentences
from launcher.backends import precheck_outliers
from launcher.sentences import Narrator
from launcher.status import Phase, RoleStatus, RunStatus, TaskStatus
from worker.contract.records import Event, Prechecked, Record

BEGAN = 1_000.0


def prechecked(
    number: int = 0,
    *,
    compute: float = 100.0,
    write: float = 200.0,
    bandwidth: float = 1000.0,
    latency: float = 0.2,
    count: int = 4,
) -> Prechecked:
    """Returns what worker `number` measures, with the next one in the ring at the other end."""
    other = f"demo-worker-{(number + 1) % count}"
    storage = {"disk write": write, "disk read": 900.0}
    return Prechecked(5.0, {"CPU": compute}, storage, {other: bandwidth}, {other: latency})


def status(contents: Sequence[Prechecked | None], nodes: Sequence[str] = ()) -> RunStatus:
    """Returns the status of a run with as many workers, each on a node of its own; one with None has not
    measured yet.
    """
    tasks = tuple(
        TaskStatus(
            f"demo-worker-{number}",
            "worker",
            number,
            Phase.RUNNING,
            running=BEGAN,
            node=nodes[number] if nodes else f"n{number}",
        )
        for number in range(len(contents))
    )
    records = {}
    for task, content in zip(tasks, contents, strict=True):
        event, fields = Event.DOING, {"activity": "importing TensorFlow"}
        if content is not None:
            event, fields = Event.PRECHECKED, content._asdict()
        records[task.name] = {event: Record(event, task.name, BEGAN + 5.0, fields)}
    count = len(tasks)
    role = RoleStatus("worker", "demo-worker", Phase.RUNNING, count, count, count, 0, 0, 0)
    return RunStatus("demo", "default", Phase.RUNNING, False, "", "", (role,), tasks, records=records)


def far_off(*contents: Prechecked) -> dict[str, str]:
    return {each.node: each.text for each in precheck_outliers.of_run(status(contents))}


def test_a_slow_processor() -> None:
    assert far_off(*map(prechecked, range(3)), prechecked(3, compute=40.0)) == {
        "n3": "multiplies matrices at 40 GFLOP/s, where 100 are usual"
    }


def test_a_slow_disk() -> None:
    assert far_off(prechecked(0), prechecked(1, write=8.0), *map(prechecked, (2, 3))) == {
        "n1": "writes its disk at 8 MB/s, where 200 are usual"
    }


def test_of_a_slow_network_the_neighbours_are_not_named() -> None:
    """Both links of worker 1 are slow: the one to worker 2, and that of worker 0 to it."""
    slow = [prechecked(number, bandwidth=12.0, latency=9.0) for number in (0, 1)]
    contents = [*slow, prechecked(2), prechecked(3)]
    assert far_off(*contents) == {
        "n1": (
            "reaches the others at 12 MB/s, where 1,000 are usual, reaches the others and back in 9 ms, "
            "where 0.2 ms is usual"
        )
    }


def test_links_within_a_node_say_nothing_of_its_network() -> None:
    contents = [prechecked(number, bandwidth=1000.0 if number % 2 else 40_000.0) for number in range(6)]
    contents = [
        each._replace(bandwidth={f"demo-worker-{(number + 1) % 6}": next(iter(each.bandwidth.values()))})
        for number, each in enumerate(contents)
    ]
    assert precheck_outliers.of_run(status(contents, ["a", "a", "b", "b", "c", "c"])) == []


@pytest.mark.parametrize(
    "contents",
    [
        (prechecked(0, compute=100.0, count=2), prechecked(1, compute=10.0, count=2)),  # of two: which?
        (*map(prechecked, range(3)), prechecked(3, compute=60.0)),
        (*map(prechecked, range(3)), prechecked(3, write=90.0)),
        (*map(prechecked, range(3)), prechecked(3, latency=0.9)),
    ],
)
def test_what_is_not_far_off(contents: Sequence[Prechecked]) -> None:
    assert far_off(*contents) == {}


def test_nothing_is_said_before_all_have_measured() -> None:
    contents = [*map(prechecked, range(3)), prechecked(3, compute=4.0)]
    assert sentences.prechecks(status([*contents[:3], None])) == []
    assert sentences.prechecks(status(contents)) == [
        (
            "precheck of 4 tasks: 4 to 100 GFLOP/s; disk write 200 MB/s; disk read 900 MB/s; 1,000 MB/s and "
            "0.2 ms to the others"
        ),
        "worker 3 on node n3 is far off: it multiplies matrices at 4 GFLOP/s, where 100 are usual",
    ]


def test_a_run_without_a_precheck_says_nothing() -> None:
    assert sentences.prechecks(status([None, None, None])) == []


def test_the_log_says_it_once() -> None:
    contents = [*map(prechecked, range(3)), prechecked(3, compute=4.0)]
    narrator = Narrator()
    assert [news.text for news in narrator.news(status([None] * 4), [])] == ["4 tasks started"]
    texts = [news.text for news in narrator.news(status(contents), [])]
    assert [text.partition(":")[0] for text in texts] == [
        "precheck of 4 tasks",
        "worker 3 on node n3 is far off",
    ]
    assert narrator.news(status(contents), []) == []


def test_what_a_pod_that_is_gone_has_measured_does_not_count() -> None:
    """The task's pod was replaced, on another node."""
    now = status([*map(prechecked, range(3)), prechecked(3, compute=4.0)])
    replaced = replace(now.tasks[3], running=BEGAN + 100.0, node="n9")
    assert precheck_outliers.of_run(replace(now, tasks=(*now.tasks[:3], replaced))) == []
