"""The shown progress of a training, the time that the rest takes, and the activity of its tasks."""

from __future__ import annotations

import dataclasses

from launcher.status import Phase, RoleStatus, RunStatus, TaskStatus
from launcher.task_records import task_activity
from launcher.task_records.remaining_time import Pace
from worker.contract.records import (
    EVENTS,
    Content,
    Doing,
    Evaluation,
    Progress,
    Ready,
    Record,
    Training,
    Waiting,
    fields_of,
)


def record(time: float, content: Content, task: str = "m-chief-0") -> Record:
    return Record(EVENTS[type(content)], task, time, fields_of(content))


def progress(epoch: int, step: int, *, end: bool = False, steps: int | None = 10) -> Progress:
    return Progress(epoch, 4, step, steps, 1.0, None, {}, end)


def test_the_rest_takes_as_long_as_what_was_done() -> None:
    pace = Pace()
    pace.add(record(0.0, Training(4, 10, 0)))
    pace.add(record(30.0, progress(1, 1)))
    assert pace.remaining(30.0) is None, "the first step traces, and tells nothing of the others"
    pace.add(record(39.0, progress(1, 10, end=True)))
    assert pace.done == 0.25
    assert round(pace.remaining(39.0) or 0.0, 6) == 30.0
    assert round(pace.remaining(45.0) or 0.0, 6) == 24.0
    assert pace.remaining(1000.0) == 0.0


def test_a_training_that_starts_again_has_a_new_pace() -> None:
    pace = Pace()
    for number in range(1, 11):
        pace.add(record(float(number), progress(1, number)))
    pace.add(record(500.0, Training(4, 10, 1)))
    assert (pace.done, pace.remaining(500.0)) == (0.25, None)
    pace.add(record(510.0, progress(2, 1)))
    pace.add(record(514.0, progress(2, 5)))
    assert round(pace.remaining(514.0) or 0.0, 6) == 25.0
    # A restarted chief repeats some steps, maybe without a start record.
    pace.add(record(520.0, progress(2, 2)))
    assert pace.remaining(520.0) is None


def test_steps_that_are_not_known() -> None:
    pace = Pace()
    pace.add(record(1.0, progress(1, 7, steps=None)))
    assert pace.done == 0.0
    pace.add(record(2.0, progress(4, 10, end=True, steps=None)))
    assert (pace.done, pace.remaining(2.0)) == (1.0, 0.0)


CHIEF = TaskStatus("m-chief-0", "chief", 0, Phase.RUNNING, running=100.0)


def doing(*contents: Content, task: TaskStatus = CHIEF, since: float = 101.0) -> str:
    records = [record(since + number, content, task.name) for number, content in enumerate(contents)]
    return task_activity.of_task(task, {one.event: one for one in records})


def test_what_a_task_does_is_its_newest_record() -> None:
    assert doing() == ""
    assert doing(Doing("importing TensorFlow")) == "importing TensorFlow"
    assert doing(Doing("x"), Waiting(["a", "b", "c", "d"], 1.0, 9)) == "waiting for a, b, c and 1 more"
    assert doing(Doing("x"), Waiting([], 1.0, 9)) == "connecting"
    assert doing(Doing("x"), Training(4, 10, 0)) == "tracing the first step"
    assert doing(Training(4, 10, 0), Doing("training")) == "tracing the first step"
    assert doing(Training(4, 10, 0), progress(1, 1)) == ""
    assert doing(Training(4, 10, 0), progress(4, 10, end=True), Doing("exporting the model")) == (
        "exporting the model"
    )
    evaluator = dataclasses.replace(CHIEF, role="evaluator")
    assert doing(Doing("x"), Ready(), task=evaluator) == "waiting for a checkpoint"
    assert doing(Doing("x"), Evaluation("ckpt-1", 1, {}), task=evaluator) == "waiting for a checkpoint"


def test_what_an_earlier_pod_did_is_over() -> None:
    assert doing(Doing("importing TensorFlow"), since=90.0) == ""


def test_most_tasks_of_a_role_are_heard() -> None:
    tasks = [TaskStatus(f"m-worker-{n}", "worker", n, Phase.RUNNING, running=1.0) for n in range(3)]
    contents: list[Content] = [Ready(), Doing("importing TensorFlow"), Ready()]
    records = {
        task.name: {EVENTS[type(one)]: record(2.0, one, task.name)}
        for task, one in zip(tasks, contents, strict=True)
    }
    roles = (RoleStatus("worker", "m-worker", Phase.RUNNING, 3, 3, 3, 0, 0, 0),)
    status = RunStatus("m", "default", Phase.RUNNING, False, "", "", roles, tuple(tasks), records=records)
    assert task_activity.of_role(status, "worker") == "idle"
    training = {**records, "m-chief-0": {"training": record(3.0, Training(4, 10, 0))}}
    working = dataclasses.replace(status, records=training)
    assert task_activity.of_role(working, "worker") == "", "it takes the chief's steps"
