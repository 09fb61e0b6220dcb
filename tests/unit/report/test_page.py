"""The report's page: curves, events, rows for many tasks; all of its data is escaped."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Sequence
from datetime import timezone
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.backends.base import History, LogLine
from launcher.errors import SpecError
from launcher.report import drawing
from launcher.report.curves import Curve, curves
from launcher.report.events import MOST, report_events, shortened
from launcher.report.page import page, write
from launcher.report.page_content import Report, report
from launcher.report.restarts import restarts
from launcher.report.task_groups import grouped
from launcher.report.timeline import task_timelines
from launcher.status import Phase
from tests.unit.histories import BEGIN, event, history, pod, says, step
from worker.contract.records import Event, Record, line_of
from worker.contract.run_config import ElasticWorkers

TRAINING = says("chief", 0, 0, 5, "training", epochs=8, steps_per_epoch=10, initial_epoch=0)


def shown(of: History) -> Report:
    return report(of, timezone.utc)


def drawn(of: History) -> dict[str, Curve]:
    return {curve.name: curve for curve in curves(of.lines, restarts(task_timelines(of)))}


def points(curve: Curve, number: int = 0) -> list[tuple[float, float]]:
    return [(point.epoch, round(point.value, 3)) for point in curve.series[number].points]


def trained(*others: LogLine) -> History:
    lines = [TRAINING, *(step(10 * epoch, epoch, 10) for epoch in range(1, 9)), *others]
    return history([pod("chief", finished=90, exit_code=0)], lines, finished=90)


def test_curves_have_a_point_an_epoch_and_the_evaluations() -> None:
    scores = [
        says(
            "evaluator", 0, 0, 10 * epoch + 3, "evaluation", checkpoint="", epoch=epoch, metrics={"loss": 0.5}
        )
        for epoch in (2, 4)
    ]
    charts = drawn(trained(step(12, 2, 5), *scores))
    assert list(charts) == ["loss", "accuracy", "steps per second"]
    assert points(charts["loss"])[:3] == [(1, 1), (2, 0.5), (3, 0.333)]
    assert points(charts["loss"], 1) == [(2, 0.5), (4, 0.5)]
    assert [series.held_out for series in charts["loss"].series] == [False, True]
    assert points(charts["steps per second"])[-1] == (8, 5)


def test_the_first_epoch_has_points_within_it() -> None:
    lines = [TRAINING, step(10, 1, 2), step(15, 1, 5), step(20, 1, 10, loss=7.0), step(30, 2, 5)]
    of = history([pod("chief")], lines, seen=31)
    assert points(drawn(of)["loss"]) == [(0.2, 1), (0.5, 1), (1.5, 0.5)]
    of = history([pod("chief")], [*lines, step(40, 2, 10)], seen=41)
    assert points(drawn(of)["loss"]) == [(1, 7), (2, 0.5)]


def test_what_is_trained_again_counts_once_and_the_restart_is_marked() -> None:
    attempts = [
        pod("chief", finished=56, exit_code=137),
        pod("chief", 0, 1, created=58, finished=99, exit_code=0),
    ]
    first = [step(10 * epoch, epoch, 10, loss=1.0) for epoch in range(1, 6)]
    second = [step(50 + 9 * epoch, epoch, 10, loss=0.25, attempt=1) for epoch in (4, 5)]
    curve = drawn(history(attempts, [TRAINING, *first, step(55, 6, 5), *second], finished=99))["loss"]
    assert points(curve) == [(1, 1), (2, 1), (3, 1), (4, 0.25), (5, 0.25)]
    assert curve.restarts == (5.5,)


def test_what_is_no_number_is_no_point() -> None:
    odd = {"accuracy": "nan", "recall": 0.5}
    lines = [
        step(10, 1, 10, loss=float("nan"), metrics=odd),
        step(15, 1, 10, metrics={"names": ["x"], "flag": True, "huge": 10**400}),
        says("chief", 0, 0, 20, "progress", epoch="second", epoch_end=True, loss=0.5),
        says("chief", 0, 0, 25, "progress", epoch=10**400, epoch_end=True, loss=0.5),
        step(28, 2, 10, metrics=3),
        step(30, 2, 10),
    ]
    charts = drawn(history([pod("chief")], lines, seen=31))
    assert list(charts) == ["loss", "accuracy", "recall", "steps per second"]
    assert points(charts["accuracy"]) == [(2, 0.75)]


def test_gpus_are_drawn_at_the_epoch_that_was_reached_over_all_tasks() -> None:
    """Before the first step nothing has an epoch; a part of a GPU (MIG) has memory, and no use."""

    def used(index: int, time: float, use: list[int], memory: list[int]) -> LogLine:
        return says("worker", index, 0, time, "gpu-use", use=use, memory=memory, total=[81_920] * len(memory))

    of = trained(
        used(0, 4, [99], [81_920]),
        used(0, 31, [80, 90], [2048, 1024]),
        used(1, 33, [40], [3072]),
        used(0, 44, [], [1024]),
        used(0, 88, [20], [2048]),
    )
    charts = drawn(of)
    assert list(charts)[-3:] == ["steps per second", "GPU use, %", "GPU memory, GiB"]
    assert points(charts["GPU use, %"]) == [(3.5, 70), (8, 20)]
    assert points(charts["GPU memory, GiB"]) == [(3.5, 3), (4.5, 1), (8, 2)]
    shown = report(of)
    assert [(each.label, each.value) for each in shown.figures if each.label == "GPU use"] == [
        ("GPU use", "45 %")
    ]
    assert "Steps per second" in [each.label for each in shown.figures]
    assert "GPU memory, GiB" in page(shown)


def test_a_long_curve_is_thinned_and_keeps_its_end() -> None:
    lines = [step(epoch, epoch, 10) for epoch in range(1, 5001)]
    curve = points(drawn(history([pod("chief")], lines, seen=6000))["loss"])
    assert len(curve) <= 240
    assert curve[-1][0] == 5000


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ((0.24, 0.97), ["0.2", "0.4", "0.6", "0.8", "1.0"]),
        ((0.5, 0.5), ["0.45", "0.50", "0.55"]),
        ((-3.0, 41.0), ["-20", "0", "20", "40", "60"]),
        ((1e-7, 4e-7), ["1e-07", "2e-07", "3e-07", "4e-07"]),
    ],
)
def test_an_axis_has_round_values(values: tuple[float, float], labels: list[str]) -> None:
    lines = [step(number, number, 10, loss=value) for number, value in enumerate(values, 1)]
    chart = drawing.chart(drawn(history([pod("chief")], lines, seen=9))["loss"])
    assert [tick.label for tick in chart.y_ticks] == labels
    assert (chart.y_ticks[0].at, chart.y_ticks[-1].at) == (0, 100)
    assert all(0 <= y <= 100 for _, y, _ in chart.lines[0].dots)


def test_the_axis_of_time() -> None:
    def labels(total: float) -> list[str]:
        return [tick.label for tick in drawing.time_ticks(total)]

    assert labels(0) == ["0"]
    assert labels(0.5) == ["0", "0.1 s", "0.2 s", "0.3 s", "0.4 s", "0.5 s"]
    assert labels(75) == ["0", "10 s", "20 s", "30 s", "40 s", "50 s", "1:00", "1:10"]
    assert labels(5400) == ["0", "15 min", "30 min", "45 min", "1 h 00", "1 h 15", "1 h 30"]
    assert labels(3 * 86400)[:2] == ["0", "12 h"]
    assert len(labels(1e9)) < 12


def many(workers: int, **strange: dict[str, object]) -> History:
    """Returns a history of `workers` workers that start within ten seconds; worker 7 is killed meanwhile."""
    attempts = [pod("chief", running=20, finished=600, exit_code=0)]
    for index in range(workers):
        begun = 2 + index * 8 / workers
        if index == 7:
            attempts += [
                pod("worker", 7, 0, running=begun, finished=300, exit_code=137),
                pod("worker", 7, 1, created=302, finished=600, exit_code=0),
            ]
        else:
            attempts.append(pod("worker", index, created=1, running=begun, finished=600, exit_code=0))
    lines = [
        says("chief", 0, 0, 30, "training", epochs=8, steps_per_epoch=10, initial_epoch=0),
        *(step(30 + 70 * epoch, epoch, 10) for epoch in range(1, 9)),
    ]
    events = [
        event(index % 10, f"worker {index}", reason, f"worker {index}: {reason}")
        for index in range(workers)
        for reason in ("Scheduled", "Pulling", "Pulled", "Created", "Started")
    ]
    return history(attempts, lines, events, finished=600)


def test_a_thousand_workers_fit_on_a_page() -> None:
    of = many(1000)
    folded = grouped(task_timelines(of), 600)
    assert sum(len(row.tasks) for row in folded) == 1001
    assert len(folded) < 20
    (killed,) = (row for row in folded if row.typical.index == 7 and row.typical.role == "worker")
    assert len(killed.tasks) == 1, "what is strange has a row of its own"
    text = page(shown(of))
    assert len(text) < 200_000
    assert "998 tasks alike" in text or "tasks alike" in text
    assert "and 999 more like it" in text


def test_strange_tasks_are_folded_too_when_there_are_too_many() -> None:
    attempts = [pod("chief", finished=600, exit_code=0)]
    for index in range(300):
        attempts += [
            pod("worker", index, 0, finished=index + 100, exit_code=100 + index % 100),
            pod("worker", index, 1, created=index + 101, finished=600, exit_code=0),
        ]
    rows = grouped(task_timelines(history(attempts, finished=600)), 600)
    assert len(rows) == 17
    assert sum(len(row.tasks) for row in rows) == 301
    assert rows[-1].mixed


def test_few_tasks_have_a_row_each() -> None:
    attempts = [pod("worker", index, finished=60, exit_code=0) for index in range(12)]
    assert len(grouped(task_timelines(history(attempts, finished=60)), 60)) == 12


def test_events_tell_what_was_wrong_and_who_said_so() -> None:
    attempts = [
        pod("chief", finished=90, exit_code=0),
        pod("worker", 0, finished=40, exit_code=137),
        pod("worker", 0, 1, created=42, finished=90, exit_code=0),
        pod("worker", 1, finished=90, exit_code=0),
    ]
    lines = [TRAINING, says("chief", 0, 0, 50, "notice", message="training continues with 1 of 2 workers")]
    cluster_events = [
        event(3, "chief 0", "Pulled", "in 2s"),
        event(4, "worker 1", "BackOff", "no image", warning=True),
    ]
    of = history(attempts, lines, cluster_events, finished=90)
    event_rows = [
        (h.time - BEGIN, h.who, h.kind, h.text)
        for h in report_events(of, task_timelines(of), restarts(task_timelines(of)))
    ]
    assert event_rows == [
        (0, "run", "plain", "submitted"),
        (0, "chief", "plain", "1 task started"),
        (0, "worker", "plain", "2 tasks started"),
        (3, "chief", "plain", "Pulled: in 2s"),
        (4, "worker 1", "warning", "BackOff: no image"),
        (5, "chief", "plain", "trains 8 epochs of 10 steps"),
        (40, "worker 0", "bad", "ended with exit code 137 (SIGKILL)"),
        (42, "worker 0", "warning", "started again (killed)"),
        (50, "chief", "warning", "training continues with 1 of 2 workers"),
        (90, "run", "good", "has succeeded"),
    ]


def test_of_many_events_what_is_wrong_is_kept() -> None:
    lines = [says("chief", 0, 0, 1 + number, "exported", path=f"/{number}") for number in range(2 * MOST)]
    wrong = says("chief", 0, 0, 2, "notice", message="something is wrong")
    of = history([pod("chief")], [*lines, wrong], seen=2000)
    kept = shortened(report_events(of, task_timelines(of), []))
    assert len(kept) == MOST
    assert any(event.text == "something is wrong" for event in kept)
    assert [event.time for event in kept] == sorted(event.time for event in kept)


def test_a_failed_run_says_why() -> None:
    failed = says(
        "chief", 0, 0, 9, "failed", message="no such file", traceback="File x, line 3\n  open()", exit_code=70
    )
    of = history(
        [pod("chief", finished=10, exit_code=70)],
        [TRAINING, failed],
        finished=10,
        phase=Phase.FAILED,
        message="Container tensorflow failed with exit code 70",
    )
    run_report = shown(of)
    assert run_report.badge == ("bad", "Failed")
    assert run_report.message == "Container tensorflow failed with exit code 70"
    (failure,) = run_report.failures
    assert (failure.who, failure.how) == ("chief", "ended with exit code 70")
    assert (failure.message, failure.traceback) == ("no such file", "File x, line 3\n  open()")
    assert "<pre>File x, line 3\n  open()</pre>" in page(run_report)


def test_pods_that_are_gone_are_missed() -> None:
    of = history(
        [pod("chief", finished=10, exit_code=0), pod("worker", finished=10, exit_code=0)], finished=10
    )
    gone = dataclasses.replace(of, attempts=of.attempts[:1], missing=["1 of 2 logs could not be read: why."])
    assert shown(gone).missing == (
        "1 of 2 logs could not be read: why.",
        "The pods of 1 task have been deleted, so their times are not known.",
    )


def elastic_history(**end: Any) -> History:
    """Returns a run's history in which worker 1 joined, and left when the run was scaled to one worker."""

    def member(time: float, *workers: int, joined: Sequence[int] = (), left: Sequence[int] = ()) -> LogLine:
        numbers = {"workers": list(workers), "joined": list(joined), "left": list(left)}
        return says("chief", 0, 0, time, "membership", **numbers, reason="", generation=None)

    gone = pod("worker", 1, created=20, finished=60, exit_code=143, deleted=True)
    lines = [TRAINING, member(10, 0, joined=[0]), member(25, 0, 1, joined=[1]), member(60, 0, left=[1])]
    of = history([pod("chief"), pod("worker"), gone], lines, **end)
    chief, worker = of.status.roles
    worker = dataclasses.replace(worker, desired=1, elastic=ElasticWorkers(1, 4, 2))
    return dataclasses.replace(of, status=dataclasses.replace(of.status, roles=(chief, worker)))


def test_elastic_workers_that_came_and_went() -> None:
    of = elastic_history(seen=100)
    run_report = shown(of)
    texts = [event.text for event in run_report.events]
    assert "trains with 2 workers: worker 1 joined" in texts
    assert "trains with 1 worker: worker 1 left" in texts
    assert not any("143" in text or "again" in text for text in texts)
    assert "1 chief, 1 worker (1 to 4)" in run_report.facts
    (gone,) = [task for task in task_timelines(of) if (task.role, task.index) == ("worker", 1)]
    assert gone.segments[-1].end == BEGIN + 60, "nobody comes in its place"
    assert shown(elastic_history(finished=100)).missing == (), "it has more tasks than it is to have"


HOSTILE = (
    "</style></title><script>alert(1)</script><img src=x onerror=alert(1)> \" ' &amp; {{ 7*7 }} "
    "\x1b[31m\ud800\x00"
)


class Elements(HTMLParser):
    """Collects the elements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def test_whatever_a_run_says_stays_text() -> None:
    chief = pod("chief", finished=10, exit_code=70, node=HOSTILE, message=HOSTILE, reason=HOSTILE)
    lines = [
        step(3, 1, 10, metrics={HOSTILE: 0.5}),
        says("chief", 0, 0, 4, "notice", message=HOSTILE),
        says("chief", 0, 0, 5, "waiting", tasks=[HOSTILE], seconds=0, deadline=HOSTILE),
        says("chief", 0, 0, 6, "training", epochs=HOSTILE, steps_per_epoch=HOSTILE, initial_epoch=HOSTILE),
        says("chief", 0, 0, 7, "evaluation", checkpoint=HOSTILE, epoch=None, metrics=HOSTILE),
        says("chief", 0, 0, 9, "failed", message=HOSTILE, traceback=HOSTILE, exit_code=70),
    ]
    of = history(
        [chief],
        lines,
        [event(1, HOSTILE, HOSTILE, HOSTILE)],
        finished=10,
        phase=Phase.FAILED,
        message=HOSTILE,
    )
    of = dataclasses.replace(
        of, missing=[HOSTILE], status=dataclasses.replace(of.status, run=HOSTILE, namespace=HOSTILE)
    )
    text = page(shown(of))
    text.encode()
    elements = Elements(text)
    assert not {"script", "img", "iframe", "object", "form"} & set(elements.names)
    assert not [name for name, _ in elements.attributes if name.startswith("on")]
    assert elements.names.count("style") == elements.names.count("title") == 1
    assert "{{ 7*7 }}" in elements.text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
EVENTS = [value for name, value in vars(Event).items() if name.isupper()]
FIELDS = st.dictionaries(
    st.sampled_from(
        [
            "tasks",
            "seconds",
            "epoch",
            "epochs",
            "step",
            "steps",
            "steps_per_second",
            "loss",
            "metrics",
            "epoch_end",
        ]
    ),
    ANYTHING | st.integers(0, 9),
)


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.floats() | st.floats(0, 99), FIELDS), max_size=5))
def test_whatever_a_program_prints_as_a_record_makes_a_page(printed: list[tuple[str, float, Any]]) -> None:
    roles = itertools.cycle(["chief", "evaluator", "worker"])
    records = [Record.parse(line_of(event, "x", BEGIN + time, fields)) for event, time, fields in printed]
    lines = [LogLine(role, 0, 0, "", record) for role, record in zip(roles, records, strict=False)]
    attempts = [pod(role, finished=90, exit_code=0) for role in ("chief", "worker", "evaluator")]
    page(shown(history(attempts, lines, finished=90))).encode()


def test_the_page_loads_nothing() -> None:
    text = page(shown(trained()))
    elements = Elements(text)
    assert "script" not in elements.names
    links = [
        value or "" for name, value in elements.attributes if name in ("src", "href", "srcset", "xlink:href")
    ]
    assert links
    assert all(link.startswith(("#", "data:")) for link in links)
    assert "url(" not in text
    assert "@import" not in text
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'; img-src data:") in elements.attributes


@pytest.mark.parametrize(
    "of",
    [
        history([], seen=1),
        history([], seen=0),
        history([pod("chief")], seen=0),
        history([pod("chief", finished=0, exit_code=0)], finished=0),
        history([], phase=Phase.LOST, ended=True),
        history([pod("chief", finished=5, exit_code=0)], finished=4, seen=3),
        dataclasses.replace(history([pod("chief")], seen=9), submitted=None),
    ],
    ids=["no pod", "no time", "just begun", "in no time", "lost", "clocks apart", "nobody knows when"],
)
def test_a_run_with_next_to_nothing_to_show(of: History) -> None:
    assert "<h1>mnist</h1>" in page(shown(of))


def test_writing(tmp_path: Path) -> None:
    target = tmp_path / "run.html"
    write("one", str(target))
    write("two", str(target))
    assert target.read_text() == "two"
    link = tmp_path / "latest.html"
    link.symlink_to(target)
    write("three", str(link))
    assert link.is_symlink()
    assert target.read_text() == "three"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest.html", "run.html"]


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    for wrong in (tmp_path, tmp_path / "none" / "run.html"):
        with pytest.raises(SpecError, match=f"^--output: {re.escape(str(wrong))} cannot be written: "):
            write("page", str(wrong))
    assert list(tmp_path.iterdir()) == []


def test_what_was_trained_and_how() -> None:
    parameters = {"epochs": 3, "name": "x" * 100, "url": "https://me:secret@host/", "layers": [8, 4]}
    spec = {"strategy": "ParameterServer", "program": {"entrypoint": "a:B", "parameters": parameters}}
    past = dataclasses.replace(history([pod("chief")]), spec=spec)
    facts = report(past, timezone.utc).facts
    assert facts[3:5] == ("strategy ParameterServer", "program a:B")
    assert facts[5].startswith(f"epochs 3, name {'x' * 57}..., url https://")
    assert facts[5].endswith("@host/, layers [8, 4]")
    assert "secret" not in facts[5]
    script = {"strategy": "Mirrored", "command": ["python", "train it.py"]}
    shown = report(dataclasses.replace(past, spec=script), timezone.utc).facts
    assert shown[3:5] == ("strategy Mirrored", "command python 'train it.py'")
