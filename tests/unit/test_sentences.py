"""The lines about a run while it is followed, and about a cluster."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence
from typing import Any

import pytest

from launcher import sentences
from launcher.backends.base import Finding, LogLine, RunEvent
from launcher.cli import console
from launcher.status import Phase, RoleStatus, RunStatus, TaskStatus
from launcher.task_records import presentation, record_sentences
from tests.unit import histories
from tests.unit.cli.test_console import _Nowhere
from worker.contract.records import Event, Progress, Record

WORDS = "0/3 nodes are available: 3 Insufficient cpu."


def role(reason: str, message: str) -> RoleStatus:
    return RoleStatus(
        "worker", "mnist-worker", Phase.PENDING, 2, 2, 0, 0, 0, 0, reason, message, bool(reason)
    )


def run(*tasks: TaskStatus, reason: str = "", message: str = "") -> RunStatus:
    roles = (role(reason, message),)
    return RunStatus("mnist", "default", Phase.PENDING, False, "", "", roles, tasks)


def task(attempt: int = 0, **changes: object) -> TaskStatus:
    made = TaskStatus("mnist-worker-1", "worker", 1, Phase.RUNNING, attempt=attempt)
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def line(text: str, attempt: int = 0, record: Record | None = None) -> LogLine:
    return LogLine("worker", 1, attempt, text, record)


def texts(narrator: sentences.Narrator, status: RunStatus, *lines: LogLine) -> list[str]:
    return [news.text for news in narrator.news(status, lines)]


def test_the_learning_rate_is_said_at_an_epoch_s_end() -> None:
    end = Progress(1, 2, 5, 5, 12.0, 0.5, {}, epoch_end=True, learning_rate=0.00125)
    assert record_sentences.measures(end) == "loss 0.5000, 12 steps/s, lr 0.00125"
    assert record_sentences.measures(end._replace(learning_rate=None, loss=None)) == "12 steps/s"
    assert record_sentences.metrics({"loss": 0.5, "top\n5": 0.75}) == "top 5 0.7500, loss 0.5000"


def test_why_a_role_waits_is_said_once() -> None:
    narrator = sentences.Narrator()
    assert texts(narrator, run()) == []
    one = run(reason="Unschedulable", message=f"1 of 2 tasks: {WORDS}")
    assert texts(narrator, one) == [f"waits (Unschedulable): 1 of 2 tasks: {WORDS}"]
    assert texts(narrator, run(reason="Unschedulable", message=f"2 of 2 tasks: {WORDS}")) == []
    assert texts(narrator, run(reason="ErrImagePull", message="not found")) == [
        "waits (ErrImagePull): not found"
    ]


def test_two_roles_that_wait_for_the_same_say_it_once() -> None:
    several = run(reason="ImagePullBackOff", message=f"1 of 2 tasks: {WORDS}")
    server = dataclasses.replace(several.roles[0], role="ps", message=WORDS)
    status = dataclasses.replace(several, roles=(*several.roles, server))
    expected = [
        f"waits (ImagePullBackOff): 1 of 2 tasks: {WORDS}",
        "waits (ImagePullBackOff), as worker does",
    ]
    assert texts(sentences.Narrator(), status) == expected
    file = io.StringIO()
    console.show_status(None, status, console.console(file))  # type: ignore[arg-type]
    assert file.getvalue().count(WORDS) == 1


def test_a_deleted_pod_that_is_replaced_is_told() -> None:
    narrator = sentences.Narrator()
    texts(narrator, run(task(pod="a", running=1.0)))
    texts(narrator, run(task(pod="a", running=1.0, deleted=True)))
    again = run(task(pod="b", running=2.0))
    assert texts(narrator, again) == ["its pod was deleted, and has been replaced"]
    assert texts(narrator, again) == []


FAILED = task(phase=Phase.FAILED, exit_code=137, message="out of memory: its limit is 2Gi")


def test_a_role_that_is_about_to_fail_does_not_wait() -> None:
    """Its Job has the condition FailureTarget while its last pods leave."""
    leaving = dataclasses.replace(role("BackoffLimitExceeded", "too often"), waiting=False)
    status = dataclasses.replace(run(), roles=(leaving,))
    assert texts(sentences.Narrator(), status) == []


def test_a_task_that_is_started_again_leaves_its_last_lines() -> None:
    narrator = sentences.Narrator()
    texts(narrator, run(task()), *[line(f"line {number}") for number in range(8)])
    assert texts(narrator, run(FAILED), line("the last")) == [
        "ended with exit code 137 (SIGKILL): out of memory: its limit is 2Gi"
    ]
    # The next attempt may print at once.
    again = task(1, restarts=1, before=FAILED)
    assert texts(narrator, run(again), line("begins", 1)) == [
        *(f"  | line {number}" for number in range(4, 8)),
        "  | the last",
        "started again (restart 1)",
    ]


def test_why_a_container_has_ended_is_said_once() -> None:
    narrator = sentences.Narrator()
    texts(narrator, run(task()))
    running = dataclasses.replace(FAILED, phase=Phase.RUNNING, exit_code=None)
    assert texts(narrator, run(running)) == ["out of memory: its limit is 2Gi"]
    assert texts(narrator, run(FAILED)) == ["ended with exit code 137 (SIGKILL)"]


def test_attempts_and_tasks_repeat_no_notice() -> None:
    narrator = sentences.Narrator()

    def notice(time: float, message: str) -> LogLine:
        return line("", record=Record(Event.NOTICE, "mnist-worker-1", time, {"message": message}))

    texts(narrator, run(task(running=90.0)))
    assert texts(narrator, run(task(running=90.0)), notice(100.0, "grows")) == ["grows"]
    assert texts(narrator, run(task(running=90.0)), notice(101.0, "grows"), notice(102.0, "more")) == ["more"]


def test_the_first_and_the_last_task_to_start_are_told() -> None:
    narrator = sentences.Narrator()
    other = task(name="mnist-worker-0", index=0)
    waits = dataclasses.replace(other, phase=Phase.PENDING)
    assert texts(narrator, run(task(), waits)) == ["1 of 2 tasks started"]
    assert texts(narrator, run(task(), waits)) == []
    assert texts(narrator, run(task(), other)) == ["2 tasks started"]
    # A task that restarts has started before.
    assert texts(narrator, run(task(phase=Phase.PENDING, attempt=1, restarts=1), other)) == [
        "started again (restart 1)"
    ]
    assert texts(narrator, run(task(attempt=1, restarts=1), other)) == []


def test_a_task_that_was_stopped_before_it_had_a_node_has_not_started() -> None:
    narrator = sentences.Narrator()
    other = task(name="mnist-worker-0", index=0, phase=Phase.PENDING)
    assert texts(narrator, run(task(), other)) == ["1 of 2 tasks started"]
    # Kubernetes lets a pod that it deletes end as Failed, also where no node had accepted it.
    stopped = dataclasses.replace(other, phase=Phase.FAILED, deleted=True)
    assert texts(narrator, run(task(), stopped)) == []
    ran = dataclasses.replace(stopped, started=1.0, running=2.0)
    assert texts(sentences.Narrator(), run(task(), ran)) == ["2 tasks started"]


def test_a_task_that_has_said_why_it_failed_does_not() -> None:
    narrator = sentences.Narrator()
    record = Record(
        Event.FAILED, "mnist-worker-1", 1.0, {"message": "no data", "traceback": "", "exit_code": 70}
    )
    assert texts(narrator, run(task()), line("one"), line("", record=record), line("two")) == [
        "1 of 2 tasks started",
        "failed: no data",
    ]
    assert texts(narrator, run(task(1, restarts=1, before=FAILED))) == ["started again (restart 1)"]


def test_status_says_why_a_role_waits() -> None:
    file = io.StringIO()
    status = run(reason="ErrImagePull", message="2 of 2 tasks: not found")
    console.show_status(None, status, console.console(file))  # type: ignore[arg-type]
    assert "Pending (ErrImagePull)" in file.getvalue()
    assert "worker waits (ErrImagePull): 2 of 2 tasks: not found" in file.getvalue()


def test_an_event() -> None:
    event = RunEvent(0.0, "worker 1", True, "FailedScheduling", WORDS, 3)
    assert sentences.event(event).endswith(f" ! worker 1     FailedScheduling: {WORDS} (3 times)")


def test_findings() -> None:
    fine = Finding("quota", "ok", "none")
    assert list(sentences.findings([fine])) == ["ok       quota  none", "", "a run can be submitted"]
    missing = Finding("namespace", "missing", "there is no namespace a", "Create it.")
    assert list(sentences.findings([fine, missing]))[1:] == [
        "missing  namespace  there is no namespace a",
        "                    Create it.",
        "",
        "a run cannot be submitted here: see namespace",
    ]


def test_a_prediction_is_told_with_the_sum_of_all_tasks() -> None:
    def told(number: int, event: str, **fields: object) -> dict[str, Record]:
        return {event: Record(event, f"mnist-worker-{number}", float(number), fields)}

    records = {
        f"mnist-worker-{number}": told(
            number, Event.PREDICTING, examples=1000 + number, examples_per_second=20.0
        )
        for number in range(2)
    }
    status = dataclasses.replace(run(), records=records, phase=Phase.RUNNING)
    assert record_sentences.predicted(status) == "predicted 2,001 examples, 40 examples/s"
    out = io.StringIO()
    console.console(out).print(console.live_table(status))
    assert "predicted 2,001 examples, 40 examples/s" in out.getvalue()

    done = Record(Event.PREDICTED, "mnist-worker-0", 9.0, {"path": "/m/p", "examples": 2010, "parts": 1})
    assert presentation.describe(done) == "wrote the predictions to /m/p (2,010 examples in 1 file)"
    assert record_sentences.predicted(run()) == ""


def test_progress_of_a_prediction_is_a_line_now_and_then() -> None:
    narrator = sentences.Narrator()

    def heard(seconds: float, *, in_place: bool = False) -> list[str]:
        fields = {"examples": 7, "examples_per_second": 3.5}
        record = Record(Event.PREDICTING, "mnist-worker-1", seconds, fields)
        return [news.text for news in narrator.news(run(), [line("", record=record)], in_place=in_place)]

    assert heard(1.0) == ["predicted 7 examples, 3.50 examples/s"]
    assert heard(2.0) == []
    assert heard(9.0, in_place=True) == []
    assert heard(10.0) == ["predicted 7 examples, 3.50 examples/s"]


def test_a_line_that_comes_a_moment_late_has_no_older_time() -> None:
    narrator = sentences.Narrator()

    def times(at: float, role: str) -> list[float | None]:
        lines = [histories.says(role, 0, 0, at, "notice", message=f"at {at}")]
        return [news.time and round(news.time - histories.BEGIN, 1) for news in narrator.news(status, lines)]

    status = histories.history([histories.pod("chief", created=1.0)], []).status
    narrator.news(status, [])
    assert times(5.0, "chief") == [5.0]
    assert times(4.2, "worker") == [5.0]
    # What has happened long before is told with its time.
    assert times(2.0, "ps") == [2.0]
    assert times(6.0, "chief") == [6.0]


def test_an_older_run_is_told_in_the_order_of_time() -> None:
    """All lines come at once, task by task, and a cluster has the times of pods in whole seconds."""
    attempts = [
        histories.pod("chief", created=1.0, finished=30.0, exit_code=0),
        histories.pod("worker", created=0.0, finished=12.0, exit_code=1),
        histories.pod("worker", attempt=1, created=14.0, finished=30.0, exit_code=0, restarts=1),
        histories.pod("evaluator", created=2.0, finished=31.0, exit_code=0),
    ]
    lines = [
        histories.says("chief", 0, 0, 0.9, "notice", message="the chief begins"),
        histories.step(20.0, 1, 10),
        histories.step(29.0, 2, 10),
        histories.says("chief", 0, 0, 30.7, "notice", message="the chief is done"),
        histories.says("worker", 0, 0, 11.0, "notice", message="the worker is about to fail"),
        histories.says("worker", 0, 1, 15.0, "notice", message="the worker is back"),
        histories.says("evaluator", 0, 0, 25.0, "notice", message="scored"),
    ]
    status = histories.history(attempts, lines, finished=30.0).status
    news = sentences.Narrator().news(status, lines)
    timed_news = [
        (round(one.time - histories.BEGIN, 1), one.who, one.text) for one in news if one.time is not None
    ]
    assert len(timed_news) == len(news), "each has its time"
    assert timed_news == [
        (0.0, "worker", "1 task started"),
        (0.9, "chief", "1 task started"),
        (0.9, "chief", "the chief begins"),
        (2.0, "evaluator", "1 task started"),
        (11.0, "worker", "the worker is about to fail"),
        (14.0, "worker", "started again (restart 1)"),
        (15.0, "worker", "the worker is back"),
        (20.0, "chief", "epoch 1/8, step 10/10: accuracy 0.5000, loss 1.0000, 5.00 steps/s"),
        (25.0, "evaluator", "scored"),
        (29.0, "chief", "epoch 2/8, step 10/10: accuracy 0.7500, loss 0.5000, 5.00 steps/s"),
        (30.0, "worker", "complete"),
        (30.7, "chief", "the chief is done"),
        (30.7, "chief", "complete"),
        (31.0, "evaluator", "complete"),
    ]


DNS = "the DNS server 10.96.0.10 does not answer"
REFUSED = "nothing listens on its port: connection refused"


@pytest.mark.parametrize(
    ("reasons", "text"),
    [
        (None, "waits for a, b (10 s of at most 900 s)"),
        ({DNS: ["a", "b"]}, f"waits for a, b (10 s of at most 900 s): {DNS}"),
        ({DNS: ["a"], REFUSED: ["b"]}, f"waits for a, b (10 s of at most 900 s); a: {DNS}; b: {REFUSED}"),
    ],
    ids=["of an earlier version", "one", "two"],
)
def test_why_a_task_waits_for_others(reasons: Any, text: str) -> None:
    fields = {"tasks": ["a", "b"], "seconds": 10.2, "deadline": 900}
    fields |= {} if reasons is None else {"reasons": reasons}
    record = Record(Event.WAITING, "t", 1.0, fields)
    assert presentation.describe(record) == text
    assert Record.parse(record.line()) == record


def test_a_reason_that_changes_is_news_at_once() -> None:
    narrator = sentences.Narrator()
    fields = {"tasks": ["mnist-ps-0"], "seconds": 0.0, "deadline": 900}
    for time, reason, is_news in [(1.0, DNS, True), (11.0, DNS, False), (12.0, REFUSED, True)]:
        record = Record(Event.WAITING, "t", time, {**fields, "reasons": {reason: ["mnist-ps-0"]}})
        assert len(narrator.news(run(), [line("", record=record)])) == is_news


def test_status_says_who_waits_now() -> None:
    waits = histories.says(
        "chief", 0, 0, 5, "waiting", tasks=["x"], seconds=0, deadline=9, reasons={DNS: ["x"]}
    )
    goes_on = histories.says("chief", 0, 0, 9, "training", epochs=1, steps_per_epoch=1, initial_epoch=0)
    chief = histories.pod("chief")

    def told(lines: Sequence[LogLine], *attempts: TaskStatus) -> list[str]:
        status = histories.history(attempts or [chief], lines).status
        return [f"{news.who} {news.text}" for news in sentences.waiting_tasks(status)]

    assert told([waits]) == [f"chief waits for x (0 s of at most 9 s): {DNS}"]
    assert told([waits, goes_on]) == []
    assert told([waits], chief, histories.pod("chief", attempt=1, created=20.0)) == []
    assert told([waits], histories.pod("chief", finished=6.0, exit_code=75)) == []


def test_servers_that_were_released_have_not_failed() -> None:
    def told(*ends: int, deleted: bool = False) -> list[str]:
        tasks = tuple(
            TaskStatus(
                f"mnist-worker-{number}", "worker", number, Phase.FAILED, exit_code=code, deleted=deleted
            )
            for number, code in enumerate(ends)
        )
        failed = dataclasses.replace(
            role("RunFailed", "Stopped, since mnist-chief has failed"), waiting=False
        )
        failed = dataclasses.replace(failed, phase=Phase.FAILED)
        status = dataclasses.replace(run(*tasks), roles=(failed,), phase=Phase.FAILED, ended=True)
        out = io.StringIO()
        console.show_status(_Nowhere(), status, console.console(out))  # type: ignore[arg-type]
        rows = [line for line in out.getvalue().splitlines() if line.startswith("worker  ")]
        return [rows[0].split()[-1], texts(sentences.Narrator(), status)[-1]]

    assert told(0, 0) == ["released", "released"]
    assert told(0, 143, deleted=True) == ["stopped", "stopped"]
    assert told(0, 70) == ["(RunFailed)", "failed"]
