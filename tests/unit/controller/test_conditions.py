"""A TFJob's status, stepped through a run's life without a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from launcher.controller import conditions
from launcher.status import Phase, RoleStatus, RunStatus, TaskStatus

TYPES = {"chief": "Master", "worker": "Worker"}
NOW = 1_800_000_000.0


def a_task(role: str, index: int, phase: Phase, **fields: Any) -> TaskStatus:
    return TaskStatus(f"click-{role}-{index}", role, index, phase, **fields)


def a_role(role: str, phase: Phase, tasks: tuple[TaskStatus, ...], **fields: Any) -> RoleStatus:
    role_tasks = [task for task in tasks if task.role == role]
    active = sum(task.phase in (Phase.PENDING, Phase.RUNNING) for task in role_tasks)
    counts = {"active": active, "ready": 0, "succeeded": 0, "failed": 0, "restarts": 0}
    return RoleStatus(role, f"click-{role}", phase, len(role_tasks), **{**counts, **fields})


def a_run(phase: Phase, *tasks: TaskStatus, **fields: Any) -> RunStatus:
    roles = tuple(a_role(role, phase, tasks) for role in ("chief", "worker"))
    ended = phase in (Phase.SUCCEEDED, Phase.FAILED)
    return RunStatus("click", "ads", phase, ended, "", "", roles, tasks, **fields)


def of(status: dict[str, Any], run: RunStatus, later: float = 0) -> dict[str, Any]:
    return conditions.of_run(status, "ads", "click", run, TYPES, NOW + later)


def told(status: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(each["type"], each["status"], each["reason"]) for each in status["conditions"]]


def test_a_run_that_succeeds() -> None:
    pending = of(
        {}, a_run(Phase.PENDING, a_task("chief", 0, Phase.PENDING), a_task("worker", 0, Phase.PENDING))
    )
    assert told(pending) == [("Created", "True", "TFJobCreated")]
    assert pending["replicaStatuses"]["Master"] == {"active": 0, "succeeded": 0, "failed": 0}
    tasks = a_task("chief", 0, Phase.RUNNING), a_task("worker", 0, Phase.RUNNING)
    running = of(pending, a_run(Phase.RUNNING, *tasks), 5)
    assert told(running)[1:] == [("Running", "True", "TFJobRunning")]
    assert of(running, a_run(Phase.RUNNING, *tasks), 9) == running, "the same state is the same status"
    assert running["startTime"] == pending["startTime"]
    done = a_task("chief", 0, Phase.SUCCEEDED), a_task("worker", 0, Phase.RUNNING)
    ended = of(running, a_run(Phase.SUCCEEDED, *done, finished=NOW + 20), 21)
    assert told(ended)[1:] == [("Running", "False", "TFJobRunning"), ("Succeeded", "True", "TFJobSucceeded")]
    assert ended["completionTime"] == conditions.time_of(NOW + 20)
    assert ended["replicaStatuses"]["Worker"] == {"active": 0, "succeeded": 1, "failed": 0}
    assert conditions.is_over(ended)
    assert not conditions.is_over(running)
    news = conditions.news(running, ended)
    assert news == [("TFJobSucceeded", "TFJob ads/click successfully completed.")]


def test_workers_that_the_end_of_the_run_has_ended_have_succeeded() -> None:
    chief, done = a_task("chief", 0, Phase.SUCCEEDED), a_task("worker", 0, Phase.SUCCEEDED)
    ended = a_task("worker", 1, Phase.FAILED, exit_code=143)
    failed = a_task("worker", 2, Phase.FAILED, exit_code=1)
    counts = of({}, a_run(Phase.SUCCEEDED, chief, done, ended, failed))["replicaStatuses"]
    assert counts["Worker"] == {"active": 0, "succeeded": 2, "failed": 1}


@pytest.mark.parametrize(("phase", "succeeded"), [(Phase.SUCCEEDED, 1), (Phase.FAILED, 0)])
def test_a_run_that_ends_before_its_pods_are_seen(phase: Phase, succeeded: int) -> None:
    job = RoleStatus("chief", "click-chief", phase, 1, 0, 0, succeeded, 1 - succeeded, 0)
    counts = of({}, replace(a_run(phase), roles=(job,)))["replicaStatuses"]
    assert counts == {"Master": {"active": 0, "succeeded": succeeded, "failed": 1 - succeeded}}


def test_a_run_whose_deadline_is_over_has_failed_before_its_pods_have_ended() -> None:
    run = a_run(Phase.RUNNING, a_task("chief", 0, Phase.RUNNING), a_task("worker", 0, Phase.RUNNING))
    primary, *others = run.roles
    status = of({}, replace(run, roles=(replace(primary, reason="DeadlineExceeded"), *others)))
    assert told(status)[1:] == [("Failed", "True", "TFJobFailed")]
    assert status["completionTime"] == conditions.time_of(NOW)
    message = status["conditions"][-1]["message"]
    assert message == "Job click has failed because it was active longer than specified deadline"


def test_a_suspended_run_has_not_succeeded() -> None:
    saved = a_task("chief", 0, Phase.SUCCEEDED), a_task("worker", 0, Phase.SUCCEEDED)
    running = of({}, a_run(Phase.RUNNING, *(replace(task, phase=Phase.RUNNING) for task in saved)))
    suspended = of(running, a_run(Phase.SUSPENDED, *saved))
    assert suspended["replicaStatuses"]["Worker"] == {"active": 0, "succeeded": 0, "failed": 0}


def test_a_task_that_is_tried_again() -> None:
    chief = a_task("chief", 0, Phase.RUNNING)
    running = of({}, a_run(Phase.RUNNING, chief, a_task("worker", 0, Phase.RUNNING)))
    before = a_task("worker", 0, Phase.FAILED, exit_code=1)
    waits = a_task("worker", 0, Phase.PENDING, restarts=1, before=before)
    again = of(running, a_run(Phase.RUNNING, chief, waits), 5)
    assert told(again)[1:] == [("Restarting", "True", "TFJobRestarting")]
    assert again["conditions"][1]["message"] == "TFJob click is restarting because Worker replica(s) failed."
    runs = replace(waits, phase=Phase.RUNNING)
    assert told(of(again, a_run(Phase.RUNNING, chief, runs), 9))[1:] == [("Running", "True", "TFJobRunning")]
    deleted = replace(before, exit_code=None, deleted=True)
    drained = replace(waits, before=deleted)
    assert told(of(running, a_run(Phase.RUNNING, chief, drained), 5)) == told(running), "no failure"


def test_a_run_that_is_suspended_and_resumed() -> None:
    tasks = a_task("chief", 0, Phase.RUNNING), a_task("worker", 0, Phase.RUNNING)
    running = of({}, a_run(Phase.RUNNING, *tasks))
    suspended = of(running, a_run(Phase.SUSPENDED, *tasks), 5)
    assert told(suspended)[1:] == [
        ("Running", "False", "TFJobSuspended"),
        ("Suspended", "True", "TFJobSuspended"),
    ]
    assert of(suspended, a_run(Phase.SUSPENDED, *tasks), 7) == suspended
    resumed = of(suspended, a_run(Phase.RUNNING, *tasks), 9)
    assert ("Suspended", "False", "TFJobResumed") in told(resumed)
    assert ("Running", "True", "TFJobRunning") in told(resumed)
    assert resumed["startTime"] == conditions.time_of(NOW + 9)
    assert ("TFJobResumed", "TFJob click is resumed.") in conditions.news(suspended, resumed)


@pytest.mark.parametrize(
    ("reason", "tasks", "message"),
    [
        (
            "",
            (a_task("chief", 0, Phase.RUNNING), a_task("worker", 0, Phase.FAILED, exit_code=3)),
            "TFJob ads/click has failed because 1 Worker replica(s) failed. (click-worker-0: exit code 3)",
        ),
        (
            "DeadlineExceeded",
            (a_task("chief", 0, Phase.FAILED, exit_code=143), a_task("worker", 0, Phase.RUNNING)),
            "Job click has failed because it was active longer than specified deadline",
        ),
        (
            "BackoffLimitExceeded",
            (a_task("chief", 0, Phase.RUNNING), a_task("worker", 0, Phase.RUNNING)),
            "Job click has failed because it has reached the specified backoff limit",
        ),
    ],
)
def test_why_a_run_has_failed(reason: str, tasks: tuple[TaskStatus, ...], message: str) -> None:
    run = a_run(Phase.FAILED, *tasks)
    run = replace(run, roles=(replace(run.roles[0], reason=reason), *run.roles[1:]))
    failed = of({}, run)["conditions"][-1]
    assert (failed["type"], failed["reason"]) == ("Failed", "TFJobFailed")
    assert failed["message"] == message


def test_one_that_is_refused() -> None:
    status = conditions.refused({}, "spec.x: unknown field", NOW)
    assert told(status) == [("Failed", "True", "TFJobFailedValidation")]
    assert conditions.is_over(status)
