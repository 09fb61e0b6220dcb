"""A run's status -> the status of its TFJob, in the words of the training-operator. Pure.

Its code is the source of types, reasons and messages: `pkg/controller.v1/common/job.go` and
`pkg/controller.v1/tensorflow/tfjob_controller.go` of kubeflow/training-operator v1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Final

from launcher.status import Phase, RoleStatus, RunStatus, TaskStatus

Status = dict[str, Any]

CREATED: Final = "Created"
RUNNING: Final = "Running"
RESTARTING: Final = "Restarting"
SUSPENDED: Final = "Suspended"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
INVALID: Final = "FailedValidation"
"""The end of the reason of a TFJob that was not taken."""

_RESUMED: Final = "Resumed"
_DEADLINE: Final = "DeadlineExceeded"
_JOB_REASONS: Final = {
    _DEADLINE: "it was active longer than specified deadline",
    "BackoffLimitExceeded": "it has reached the specified backoff limit",
}
"""By the reasons of Kubernetes' Jobs."""

_ENDED: Final = (143, 137)
"""Exit codes of a task that was ended: by SIGTERM, and by SIGKILL after its grace period."""


def is_true(status: Mapping[str, Any], kind: str) -> bool:
    """Returns whether the condition holds."""
    return any(each["type"] == kind and each["status"] == "True" for each in status.get("conditions") or ())


def is_over(status: Mapping[str, Any]) -> bool:
    """Returns whether the TFJob has ended."""
    return is_true(status, SUCCEEDED) or is_true(status, FAILED)


def reason(kind: str) -> str:
    """Returns the reason that goes with a condition, which is that of the event, too."""
    return f"TFJob{kind}"


def refused(status: Mapping[str, Any], message: str, now: float) -> Status:
    """Returns the status of a TFJob that cannot be trained."""
    new_status = dict(status)
    _set(new_status, FAILED, message, now, reason_end=INVALID)
    new_status["completionTime"] = time_of(now)
    return new_status


def waiting(status: Mapping[str, Any], name: str, *, suspended: bool, now: float) -> Status:
    """Returns the status of a TFJob that has no run: it is to be started, or `suspended`."""
    new_status = dict(status)
    if not is_true(new_status, CREATED):
        _set(new_status, CREATED, f"TFJob {name} is created.", now)
    if suspended:
        _suspend(new_status, name, now)
    return new_status


def of_run(
    status: Mapping[str, Any], namespace: str, name: str, run: RunStatus, types: Mapping[str, str], now: float
) -> Status:
    """Returns the TFJob's next status; the same content as before where nothing has changed.

    `types` has the replica type of each role. `now` is in seconds since the epoch.
    """
    new_status = waiting(status, name, suspended=run.phase is Phase.SUSPENDED, now=now)
    if run.phase is not Phase.SUSPENDED and is_true(new_status, SUSPENDED):
        _set(new_status, SUSPENDED, f"TFJob {name} is resumed.", now, holds=False, reason_end=_RESUMED)
        new_status["startTime"] = time_of(now)
    new_status.setdefault("startTime", time_of(run.started or now))
    before = status.get("replicaStatuses") or {}
    new_status["replicaStatuses"] = {
        types[role.role]: _counts(run, role, before.get(types[role.role]) or {})
        for role in run.roles
        if role.role in types
    }
    path = f"{namespace}/{name}"
    if run.phase in (Phase.SUCCEEDED, Phase.FAILED) or run.primary.reason == _DEADLINE:
        # A Job whose deadline is over has failed when its pods have ended, the operator's at once.
        new_status.setdefault("completionTime", time_of(run.finished or now))
        if run.phase is Phase.SUCCEEDED:
            _set(new_status, SUCCEEDED, f"TFJob {path} successfully completed.", now)
        else:
            _set(new_status, FAILED, _why_failed(run, path, name, types), now)
        return new_status
    if run.phase is Phase.SUSPENDED:
        return new_status
    again = [task for task in run.tasks if task.role in types and _is_again(task)]
    if again:
        message = f"TFJob {name} is restarting because {types[again[0].role]} replica(s) failed."
        _set(new_status, RESTARTING, message, now)
    elif run.primary.active and any(
        task.phase is Phase.RUNNING for task in run.tasks if task.role == run.primary.role
    ):
        _set(new_status, RUNNING, f"TFJob {path} is running.", now)
    return new_status


def news(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns reason and message of each condition that came or changed."""
    known = {(each["type"], each["status"], each["reason"]) for each in before.get("conditions") or ()}
    return [
        (each["reason"], each["message"])
        for each in after.get("conditions") or ()
        if (each["type"], each["status"], each["reason"]) not in known
        and (each["status"] == "True" or each["type"] == SUSPENDED)
    ]


def time_of(seconds: float) -> str:
    """Returns Kubernetes' Time."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_again(task: TaskStatus) -> bool:
    """Whether the task has failed, and waits for its next pod to run."""
    before = task.before
    return task.phase is Phase.PENDING and before is not None and before.exit_code not in (None, 0)


def _counts(run: RunStatus, role: RoleStatus, before: Mapping[str, int]) -> Status:
    tasks = [task for task in run.tasks if task.role == role.role]
    phases = [task.phase for task in tasks]
    kinds = {"active": Phase.RUNNING, "succeeded": Phase.SUCCEEDED, "failed": Phase.FAILED}
    counts = {kind: phases.count(phase) for kind, phase in kinds.items()}
    if run.phase is Phase.SUSPENDED:  # tasks that have saved and left have not succeeded
        return {**dict.fromkeys(counts, 0), **before, "active": 0}
    if run.phase in (Phase.SUCCEEDED, Phase.FAILED) and not tasks:  # its Job is seen before its pods
        counts |= {"succeeded": role.succeeded, "failed": min(role.failed, role.desired - role.succeeded)}
    if run.phase is Phase.SUCCEEDED:  # what was left of it, and was ended with it, has succeeded, too
        ended = sum(task.phase is Phase.FAILED and task.exit_code in _ENDED for task in tasks)
        counts["failed"] -= ended
        counts |= {"active": 0, "succeeded": role.desired - counts["failed"]}
    return counts


def _why_failed(run: RunStatus, path: str, name: str, types: Mapping[str, str]) -> str:
    job = next((_JOB_REASONS[role.reason] for role in run.roles if role.reason in _JOB_REASONS), "")
    failed: Sequence[TaskStatus] = [task for task in run.failures if task.role in types]
    if job and not (failed and job == _JOB_REASONS["BackoffLimitExceeded"]):
        return f"Job {name} has failed because {job}"
    if not failed:
        return f"TFJob {path} has failed: {run.message}"
    first = failed[0]
    count = sum(task.role == first.role and task.phase is Phase.FAILED for task in run.tasks) or 1
    end = f" ({first.name}: exit code {first.exit_code})"
    return f"TFJob {path} has failed because {count} {types[first.role]} replica(s) failed.{end}"


def _suspend(status: Status, name: str, now: float) -> None:
    message = f"TFJob {name} is suspended."
    if is_true(status, RUNNING):
        _set(status, RUNNING, message, now, holds=False, reason_end=SUSPENDED)
    if not is_true(status, SUSPENDED):
        _set(status, SUSPENDED, message, now)


def _set(
    status: Status, kind: str, message: str, now: float, *, holds: bool = True, reason_end: str = ""
) -> None:
    """Sets a condition, and takes back those that it ends."""
    given: Iterable[Mapping[str, Any]] = status.get("conditions") or ()
    text, why, stamp = str(holds), reason(reason_end or kind), time_of(now)
    same = next((each for each in given if each["type"] == kind), None)
    if same is not None and (same["status"], same["reason"]) == (text, why):
        return
    changed = stamp if same is None or same["status"] != text else same["lastTransitionTime"]
    kept = []
    for each in given:
        if each["type"] == kind or {kind, each["type"]} == {RUNNING, RESTARTING}:
            continue
        if kind in (SUCCEEDED, FAILED) and each["type"] == RUNNING and each["status"] == "True":
            each = {**each, "status": "False", "lastUpdateTime": stamp, "lastTransitionTime": stamp}
        kept.append(dict(each))
    kept.append(
        {
            "type": kind,
            "status": text,
            "reason": why,
            "message": message,
            "lastUpdateTime": stamp,
            "lastTransitionTime": changed,
        }
    )
    status["conditions"] = kept
