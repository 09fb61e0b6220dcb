"""A run's Jobs and pods -> RunStatus. Pure. The objects have Kubernetes' form, on this machine too; on a
cluster they are slimmed, see `kubernetes/state/run_state`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Final, TypeVar

from launcher.index_ranges import parse_indexes
from launcher.object_names import (
    CONTAINER,
    DOMAIN,
    ELASTIC_ANNOTATION,
    NEEDED_ANNOTATION,
    PRIMARY_ANNOTATION,
    RECLAIM_ANNOTATION,
    ROLE_LABEL,
    RUN_LABEL,
)
from worker.contract.environment import ARCHIVE
from worker.contract.records import EVENTS, Content, Event, Failed, Record, Restarted
from worker.contract.run_config import ElasticWorkers
from worker.contract.task_names import EXTRA_WORKER, pod_name

INDEX_KEY: Final = "batch.kubernetes.io/job-completion-index"
"""Label and annotation of an Indexed Job's pods."""

ATTEMPT_ANNOTATION: Final = f"{DOMAIN}/attempt"
"""The number of a pod among those of its index, from 0."""

FAILURES: Final = (
    "batch.kubernetes.io/job-index-failure-count",
    "batch.kubernetes.io/job-index-ignored-failure-count",
)
"""Annotations by which a Job says how many pods of an index it has replaced; not of every Job."""

ADMISSION: Final = "AwaitsAdmission"
"""The reason of a run that waits for a queue's admission."""

SUPERVISOR_LOST: Final = "SupervisorLost"
"""The reason of a run on this machine that nobody carries on."""

RUN_ENDED: Final = "RunEnded"
RUN_FAILED: Final = "RunFailed"
"""The reasons of Jobs that the launcher has ended, since the run has succeeded, or failed."""

SCALED_DOWN: Final = "ScaledDown"
"""The reason of a pod on this machine that was stopped since its elastic run has fewer workers now."""

_CLOCK_SECONDS: Final = 1.0
"""Kubernetes' times are whole seconds."""

C = TypeVar("C", bound=Content)

Records = Mapping[str, Mapping[str, Record]]
"""The latest record of each event, by task: `records["mnist-chief-0"]["progress"]`."""


class Phase(str, Enum):
    """Where a run, a role or a task is."""

    PENDING = "Pending"
    """Nothing runs yet."""
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    LOST = "Lost"
    """The run's supervisor has ended, and its tasks with it."""
    BROKEN = "Broken"
    """The files of the run on this machine cannot be read. It has no roles then."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class TaskStatus:
    """A task's latest pod. `name` is the pod's stable hostname, `restarts` how many pods it has had before,
    of which `before` is the last.

    `exit_code` is None while it runs. All times are seconds since the epoch: `created` with the object,
    `started` when a node had accepted it, `running` when its process began, `finished` when that ended.
    `deleted`: the pod was deleted and did not end by itself. `node` is "" if it has none. `attempt` is the
    pod's number, as in its log lines. `in_place`, in a report only: it is a training process that was started
    again in the pod of the one before.
    """

    name: str
    role: str
    index: int
    phase: Phase
    restarts: int = 0
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    created: float | None = None
    started: float | None = None
    running: float | None = None
    finished: float | None = None
    deleted: bool = False
    node: str = ""
    attempt: int = 0
    before: TaskStatus | None = None
    pod: str = ""
    in_place: bool = False


@dataclass(frozen=True)
class RoleStatus:
    """A role's Job. `active` pods have not ended, `ready` ones run; `failed` counts failed pods.

    `reason` and `message` are those of the Job's condition, or say why tasks do not start if it is `waiting`.
    `needed`: whether the run fails if the Job fails; None if its role decides that. `elastic`: how many tasks
    there may be, of workers that may come and go; None where `desired` is fixed. `given_up` counts tasks that
    have failed for good, and are not tried again.
    """

    role: str
    job: str
    phase: Phase
    desired: int
    active: int
    ready: int
    succeeded: int
    failed: int
    restarts: int
    reason: str = ""
    message: str = ""
    waiting: bool = False
    needed: bool | None = None
    elastic: ElasticWorkers | None = None
    given_up: int = 0

    @property
    def least(self) -> int:
        """How many tasks the run needs of the role."""
        if self.role == EXTRA_WORKER:
            return 0
        return self.desired if self.elastic is None else min(self.elastic.min, self.desired)


@dataclass(frozen=True)
class RunStatus:
    """The run. Its phase is the primary role's. `ended`: every role has ended, or the supervisor has.

    `roles` begin with the primary; a broken run has none. `created`, `started` and `finished` are
    seconds since the epoch, `finished` the primary's, and `suspended` since when it is. `labels` are those of
    its objects.
    """

    run: str
    namespace: str
    phase: Phase
    ended: bool
    reason: str
    message: str
    roles: tuple[RoleStatus, ...]
    tasks: tuple[TaskStatus, ...]
    started: float | None = None
    finished: float | None = None
    records: Records = field(default_factory=dict)
    created: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    suspended: float | None = None

    def _repr_html_(self) -> str:
        """A table of the roles, for a notebook."""
        from html import escape

        head = ("role", "ready", "succeeded", "failed", "restarts", "state")
        rows = [
            (
                role.role,
                str(role.ready),
                f"{role.succeeded}/{role.desired}",
                str(role.failed),
                str(role.restarts),
                f"{role.phase} ({role.reason})" if role.reason else str(role.phase),
            )
            for role in self.roles
        ]
        header = "".join(f"<th>{name}</th>" for name in head)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        why = f": {escape(self.message)}" if self.message else ""
        caption = f"<caption>run {escape(self.run)}: {self.phase}{why}</caption>"
        return f"<table>{caption}<thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"

    @property
    def primary(self) -> RoleStatus:
        """The role whose end is the end of the run."""
        return self.roles[0]

    @property
    def all_run(self) -> bool:
        """Whether every task runs, or has succeeded already; of elastic workers, as many as are needed."""
        return all(role.ready + role.succeeded >= role.least for role in self.roles)

    def last_failure(self, role: str) -> TaskStatus | None:
        """The task of the role that failed last; deleted pods have not failed."""
        failed = [
            task
            for task in self.tasks
            if task.role == role and task.exit_code not in (None, 0) and not task.deleted
        ]
        return max(failed, key=lambda task: task.finished or 0.0, default=None)

    def failure_record(self, task: TaskStatus) -> Failed | None:
        """Why the task's pod failed, if the worker runtime in it has said so."""
        records = self.records.get(task.name, {})
        record, restarted = records.get(Event.FAILED), records.get(Event.RESTARTED)
        if record is None or record.time < (task.started or 0.0) - _CLOCK_SECONDS:
            return None  # none, or an earlier pod's
        if restarted is not None and restarted.time >= record.time:
            return None  # an earlier process's
        return record.content if isinstance(record.content, Failed) else None

    def restarts_in_place(self, role: str, index: int | None = None) -> int:
        """How often the worker runtime has started training processes again, in the latest pods of the role
        or of one of its tasks.
        """
        restarts = 0
        for task in self.tasks:
            record = self.records.get(task.name, {}).get(Event.RESTARTED)
            if task.role != role or index not in (None, task.index) or record is None:
                continue
            if record.time >= (task.started or 0.0) - _CLOCK_SECONDS and isinstance(
                record.content, Restarted
            ):
                restarts += record.content.restart
        return restarts

    @property
    def failures(self) -> tuple[TaskStatus, ...]:
        """The task that failed last of each failed role, the primary's first.

        A role that was stopped, by a deadline or with the run, has none.
        """
        roles = [role for role in self.roles if Phase.FAILED in (role.phase, self.phase)]
        last_failures = [self.last_failure(role.role) for role in roles]
        return tuple(task for task in last_failures if task is not None)


def fold(
    jobs: Sequence[Mapping[str, Any]],
    pods: Iterable[Mapping[str, Any]],
    records: Records | None = None,
    *,
    lost: bool = False,
) -> RunStatus:
    """The status of the run that `jobs` and `pods` belong to. `jobs` has at least one; the primary is the
    annotated one, else the first. `lost`: the run's supervisor has ended, so none of its tasks runs.
    """
    primary = next(filter(is_primary, jobs), jobs[0])
    tasks = _tasks(jobs, pods)
    ordered = [primary, *(job for job in jobs if job is not primary)]
    roles = tuple(_role(job, tasks) for job in ordered)
    ended = all(role.phase in _TERMINAL for role in roles)
    phase = roles[0].phase
    reason, message = roles[0].reason, roles[0].message
    if lost and not ended:
        ended = True
        if phase not in _TERMINAL:
            phase, reason = Phase.LOST, SUPERVISOR_LOST
            message = "its supervisor is gone, killed or shut down with the machine, and its tasks with it"
    metadata = primary["metadata"]
    return RunStatus(
        run=labels_of(primary).get(RUN_LABEL, metadata["name"]),
        namespace=metadata.get("namespace", "default"),
        phase=phase,
        ended=ended,
        reason=reason,
        message=message,
        roles=roles,
        tasks=tuple(tasks),
        started=_started(primary, tasks),
        finished=_finished(primary),
        records=records or {},
        created=seconds(metadata.get("creationTimestamp")),
        labels=labels_of(primary),
        suspended=seconds((condition(primary, "Suspended") or {}).get("lastTransitionTime")),
    )


_TERMINAL: Final = (Phase.SUCCEEDED, Phase.FAILED)


def attempts(jobs: Sequence[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]) -> list[TaskStatus]:
    """Every pod that the tasks of `jobs` have had, not only the latest: by task, oldest first."""
    return [
        _pod_task(job, index, pod)
        for job, index, task_pods in _by_task(jobs, pods)
        for pod in sorted(task_pods, key=_age)
    ]


def latest(records: Records, kind: type[C]) -> C | None:
    """What the newest record of this kind says, of any task."""
    newest = latest_with_time(records, kind)
    return None if newest is None else newest[0]


def latest_with_time(records: Records, kind: type[C]) -> tuple[C, float] | None:
    """What the newest record of this kind says, of any task, and when, in seconds since the epoch."""
    event = EVENTS[kind]
    event_records = [of_task[event] for of_task in records.values() if event in of_task]
    newest = max(event_records, key=lambda record: record.time, default=None)
    if newest is None or not isinstance(newest.content, kind):
        return None
    return newest.content, newest.time


def seconds(text: str | None) -> float | None:
    """A Kubernetes Time or MicroTime as seconds since the epoch."""
    if not text:
        return None
    # Python 3.10 does not read the Z.
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def annotations_of(item: Mapping[str, Any]) -> Mapping[str, str]:
    """The object's annotations, which it may lack."""
    return item["metadata"].get("annotations") or {}


def labels_of(item: Mapping[str, Any]) -> Mapping[str, str]:
    """The object's labels, which it may lack."""
    return item["metadata"].get("labels") or {}


def task_of(pod: Mapping[str, Any]) -> tuple[str, int]:
    """The role and the index of a pod of an Indexed Job."""
    labels = labels_of(pod)
    return labels.get(ROLE_LABEL, ""), int(labels.get(INDEX_KEY, 0))


def is_primary(item: Mapping[str, Any]) -> bool:
    """Whether it is the run's primary Job, or the JobSet that is the run."""
    return annotations_of(item).get(PRIMARY_ANNOTATION) == "true"


def goes_with_run(claim: Mapping[str, Any]) -> bool:
    """Whether `delete` removes the claim with the run. The primary Job does not own it: that goes by its time
    to live, too.
    """
    return annotations_of(claim).get(RECLAIM_ANNOTATION) == "Delete"


def _role_name(job: Mapping[str, Any]) -> str:
    return labels_of(job).get(ROLE_LABEL) or str(job["metadata"]["name"])


def condition(item: Mapping[str, Any], *kinds: str) -> Mapping[str, Any] | None:
    """The first condition of one of these kinds that holds for the object: a Job, or any with conditions."""
    for each in (item.get("status") or {}).get("conditions") or ():
        if each["type"] in kinds and each["status"] == "True":
            first: Mapping[str, Any] = each
            return first
    return None


def _role(job: Mapping[str, Any], tasks: Sequence[TaskStatus]) -> RoleStatus:
    status = job.get("status") or {}
    role_tasks = [task for task in tasks if task.role == _role_name(job)]
    phase, decisive = _job_phase(job, role_tasks)
    why = decisive or condition(job, "FailureTarget") or {}
    return RoleStatus(
        role=_role_name(job),
        job=job["metadata"]["name"],
        phase=phase,
        desired=job["spec"].get("completions") or 1,
        active=status.get("active") or 0,
        ready=status.get("ready") or 0,
        succeeded=status.get("succeeded") or 0,
        failed=status.get("failed") or 0,
        restarts=sum(task.restarts for task in role_tasks),
        reason=why.get("reason") or "",
        message=why.get("message") or "",
        needed=said_needed(job),
        elastic=elastic(job),
        given_up=_given_up(status),
    )


def _given_up(status: Mapping[str, Any]) -> int:
    try:
        return len(parse_indexes(status.get("failedIndexes") or ""))
    except (TypeError, AttributeError, ValueError):
        return 0  # a file of this machine that was changed by hand


def said_needed(job: Mapping[str, Any]) -> bool | None:
    """Whether the run fails if this Job fails; None if the Job does not say. Those of a TFJob do."""
    text = annotations_of(job).get(NEEDED_ANNOTATION)
    return None if text is None else text == "true"


def elastic(job: Mapping[str, Any]) -> ElasticWorkers | None:
    """How many tasks the Job may have; None where their number is fixed."""
    text = annotations_of(job).get(ELASTIC_ANNOTATION)
    try:
        return None if text is None else ElasticWorkers.from_json(text)
    except ValueError:
        return None  # changed by hand


def leaves(job: dict[str, Any]) -> bool:
    """Whether the tasks leave by themselves when the run ends, as the worker runtime's do. Needs the whole
    Job.
    """
    containers = ((job["spec"].get("template") or {}).get("spec") or {}).get("containers") or ()
    commands = [each.get("command") or [] for each in containers if each.get("name") == CONTAINER]
    return any(command[-2:] == ["-m", "worker"] or command[-1:] == [ARCHIVE] for command in commands)


def _job_phase(job: Mapping[str, Any], tasks: Sequence[TaskStatus]) -> tuple[Phase, Mapping[str, Any] | None]:
    kinds = (("Failed", Phase.FAILED), ("Complete", Phase.SUCCEEDED), ("Suspended", Phase.SUSPENDED))
    for kind, phase in kinds:
        if (decisive := condition(job, kind)) is not None:
            return phase, decisive
    if job["spec"].get("suspend"):
        return Phase.SUSPENDED, None
    begun = any(task.phase is not Phase.PENDING for task in tasks)
    return (Phase.RUNNING if begun else Phase.PENDING), None


def _tasks(jobs: Sequence[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]) -> list[TaskStatus]:
    """The latest pod of each index that has had one, in the Jobs' order. A task that elastic workers do not
    have any more is left out once it has ended.
    """
    jobs_and_tasks = [(job, _task(job, index, task_pods)) for job, index, task_pods in _by_task(jobs, pods)]
    return [
        task for job, task in jobs_and_tasks if not (_is_scaled_away(job, task) and task.phase in _TERMINAL)
    ]


def _is_scaled_away(job: Mapping[str, Any], task: TaskStatus) -> bool:
    comes_and_goes = elastic(job) is not None or task.role == EXTRA_WORKER
    return comes_and_goes and task.index >= (job["spec"].get("completions") or 1)


def _by_task(
    jobs: Sequence[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]
) -> list[tuple[Mapping[str, Any], int, list[Mapping[str, Any]]]]:
    """The pods of each index that has had one, with its Job, in the Jobs' order."""
    names = {job["metadata"]["name"]: job for job in jobs}
    of_index: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for pod in pods:
        job = labels_of(pod).get("batch.kubernetes.io/job-name") or labels_of(pod).get("job-name") or ""
        index = labels_of(pod).get(INDEX_KEY) or annotations_of(pod).get(INDEX_KEY)
        if job in names and index is not None:
            of_index.setdefault((job, int(index)), []).append(pod)
    order = {name: number for number, name in enumerate(names)}
    return [
        (names[job], index, of_index[job, index])
        for job, index in sorted(of_index, key=lambda key: (order[key[0]], key[1]))
    ]


_POD_PHASES: Final = {
    "Pending": Phase.PENDING,
    "Running": Phase.RUNNING,
    "Succeeded": Phase.SUCCEEDED,
    "Failed": Phase.FAILED,
    "Unknown": Phase.RUNNING,
}


def _task(job: Mapping[str, Any], index: int, pods: Sequence[Mapping[str, Any]]) -> TaskStatus:
    pod = max(pods, key=_age)
    # Deleted pods did not fail: a suspension deletes them, for one.
    earlier = [other for other in pods if other is not pod and not _deleted(other)]
    last = _pod_task(job, index, pod)
    # Deleted pods that were replaced count here, once they are gone, too.
    replaced = sum(int(annotations_of(pod).get(name, 0)) for name in FAILURES)
    before = _pod_task(job, index, max(earlier, key=_age)) if earlier else None
    return dataclasses.replace(last, restarts=max(len(earlier), replaced), before=before)


def _pod_task(job: Mapping[str, Any], index: int, pod: Mapping[str, Any]) -> TaskStatus:
    status = pod.get("status") or {}
    state, terminated = _main_container(status)
    metadata = job["metadata"]
    run = labels_of(job).get(RUN_LABEL)
    role = _role_name(job)
    return TaskStatus(
        name=pod_name(run, role, index) if run else f"{metadata['name']}-{index}",
        role=role,
        index=index,
        phase=_POD_PHASES[status.get("phase") or "Pending"],
        exit_code=terminated.get("exitCode"),
        reason=terminated.get("reason")
        or (state.get("waiting") or {}).get("reason")
        or status.get("reason")
        or "",
        message=terminated.get("message")
        or (state.get("waiting") or {}).get("message")
        or status.get("message")
        or "",
        created=seconds(pod["metadata"].get("creationTimestamp")),
        started=seconds(status.get("startTime")),
        running=seconds(terminated.get("startedAt") or (state.get("running") or {}).get("startedAt")),
        finished=seconds(terminated.get("finishedAt")),
        deleted=_deleted(pod),
        node=(pod.get("spec") or {}).get("nodeName") or "",
        attempt=_age(pod)[0],
        pod=pod["metadata"].get("name") or "",
    )


def _main_container(status: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The state of the first container, and how it was terminated; both empty before it is made."""
    containers = status.get("containerStatuses") or ()
    state: Mapping[str, Any] = (containers[0].get("state") or {}) if containers else {}
    return state, state.get("terminated") or {}


def _age(pod: Mapping[str, Any]) -> tuple[int, float]:
    """Sorts the pods of an index by their numbers, or else by their creation times."""
    attempt = int(annotations_of(pod).get(ATTEMPT_ANNOTATION, 0))
    return attempt, seconds(pod["metadata"].get("creationTimestamp")) or 0.0


def _deleted(pod: Mapping[str, Any]) -> bool:
    return pod["metadata"].get("deletionTimestamp") is not None


def _started(primary: Mapping[str, Any], tasks: Sequence[TaskStatus]) -> float | None:
    started = seconds((primary.get("status") or {}).get("startTime"))
    return started or min((task.started for task in tasks if task.started), default=None)


def _finished(primary: Mapping[str, Any]) -> float | None:
    status = primary.get("status") or {}
    end = condition(primary, "Failed") or condition(primary, "Complete") or {}
    return seconds(status.get("completionTime") or end.get("lastTransitionTime"))
