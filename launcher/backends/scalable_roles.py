"""Whether the number of a role's tasks can be changed now: of elastic workers, or of data workers. Pure, for
both backends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from launcher.errors import ConflictError
from launcher.lists_and_counts import counted
from launcher.object_names import PROGRAM, ROLE_LABEL
from launcher.status import condition, elastic, is_primary, labels_of
from worker.contract.task_names import DATA_WORKER, EXTRA_WORKER

_AGAIN = "submit it again with --replace and another spec.dataService.workers"


@dataclass(frozen=True)
class _Scalable:
    """What is said of a role that may be scaled."""

    noun: str
    fixed: str
    limits: str


_ROLES: Final = {
    "worker": _Scalable(
        "worker",
        "Under ParameterServer and MultiWorkerMirrored, minReplicas in spec.worker makes a run elastic: "
        "submit it again with that.",
        "minReplicas and maxReplicas in spec.worker say so, for as long as the run lasts.",
    ),
    DATA_WORKER: _Scalable(
        "data worker",
        "By sharding: FileOrData each has its part of the data, and in a JobSet or a queue of Kueue's the "
        f"number of pods is fixed: {_AGAIN}.",
        f"That is up to four times spec.dataService.workers, or 16; for more, {_AGAIN}.",
    ),
}
SCALABLE: Final = tuple(_ROLES)


@dataclass(frozen=True)
class Change:
    """The Job to change, the number of tasks that it is to have, and how many the role has before. In a queue
    of Kueue's, the workers that the run needs have a Job of their own, which keeps its number.
    """

    job: Mapping[str, Any]
    completions: int
    before: int


def change(run: str, jobs: Sequence[Mapping[str, Any]], role: str, workers: int, options: str = "") -> Change:
    """What gives the run this many tasks of the role, one of SCALABLE. Raises ConflictError, with the reason,
    where that cannot be. `options` are those with which a command finds the run.
    """
    if role not in _ROLES:
        raise ConflictError(f"role {role} cannot be scaled, only {' and '.join(SCALABLE)}")
    words = _ROLES[role]
    by_role = {labels_of(job).get(ROLE_LABEL): job for job in jobs}
    job = by_role.get(role)
    if job is None:
        raise ConflictError(f"run {run} has no {words.noun}s, so their number cannot be changed")
    allowed = elastic(job)
    if allowed is None:
        raise ConflictError(
            f"the {words.noun}s of run {run} are {replicas(job)} for as long as it lasts", words.fixed
        )
    if any(_has_ended(each) and is_primary(each) for each in jobs):
        raise ended(run)
    if any(each["spec"].get("suspend") for each in jobs):
        raise ConflictError(
            f"run {run} is suspended, so it cannot be scaled",
            f"Resume it first, with: {PROGRAM} resume {run}{options}",
        )
    extra = by_role.get(EXTRA_WORKER) if role == "worker" else None
    if _has_ended(extra or job):
        raise ConflictError(
            f"all {words.noun}s of run {run} have failed for good, so it cannot be scaled",
            f"`{PROGRAM} status {run}{options}` says why; correct it, and submit the run again.",
        )
    # A Job of no tasks would be complete.
    least = allowed.min if extra is None else replicas(job) + 1
    if not least <= workers <= allowed.max:
        raise ConflictError(
            f"run {run} can have {least} to {allowed.max} {words.noun}s, not {workers}",
            words.limits if extra is None else f"{words.limits} In a queue, one more than minReplicas stays.",
        )
    if extra is None:
        return Change(job, workers, replicas(job))
    return Change(extra, workers - replicas(job), replicas(job) + replicas(extra))


def replicas(job: Mapping[str, Any]) -> int:
    """How many tasks the Job is to have."""
    return int(job["spec"].get("completions") or 1)


def ended(run: str) -> ConflictError:
    """The error for a run that has ended."""
    return ConflictError(f"run {run} has ended, so it cannot be scaled", "Submit it again.")


def counted_tasks(number: int, role: str) -> str:
    """`2 data workers`."""
    return counted(number, _ROLES[role].noun)


def outrun(run: str, role: str, replicas_now: int, options: str = "") -> ConflictError:
    """The error for a run that was scaled while it was to be scaled."""
    return ConflictError(
        f"run {run} was scaled by somebody else meanwhile: it is to have "
        f"{counted_tasks(replicas_now, role)} now",
        f"`{PROGRAM} status {run}{options}` shows it; scale it again, if that is not what you want.",
    )


def _has_ended(job: Mapping[str, Any]) -> bool:
    """Whether its end is decided, if its pods are not gone yet."""
    return condition(job, "Complete", "Failed", "SuccessCriteriaMet", "FailureTarget") is not None
