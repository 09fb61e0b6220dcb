"""What was seen of a run -> its status, and the reasons why something does not start."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from launcher.backends.kubernetes.api_server.client import Object
from launcher.backends.kubernetes.state.waiting_reasons import (
    IN_STATUS,
    PASSING,
    for_user,
    lacking,
    waits_for_claims,
)
from launcher.backends.run_facts import clean_policy, starting_deadline, submitted
from launcher.object_names import CONTAINER, DOMAIN, ROLE_LABEL, ROLES, SPEC_ANNOTATION
from launcher.status import (
    ADMISSION,
    ATTEMPT_ANNOTATION,
    FAILURES,
    INDEX_KEY,
    Phase,
    Records,
    RoleStatus,
    RunStatus,
    TaskStatus,
    annotations_of,
    fold,
    is_primary,
    labels_of,
    leaves,
    seconds,
)

JOB_LABEL: Final = "batch.kubernetes.io/job-name"
STOPPED_ANNOTATION: Final = f"{DOMAIN}/stopped"
"""Why the launcher has stopped a Job, as `reason: message`. In Kubernetes' own fields there is just a
deadline.
"""

_TERMINAL: Final = (Phase.SUCCEEDED, Phase.FAILED)
_GATED: Final = "SchedulingGated"
_DYING: Final = "NamespaceTerminating"
_JOBSETS_OWN: Final = "jobset.sigs.k8s.io/"
"""The prefix of the labels that a JobSet's controller gives its Jobs: they are not the run's."""
_SILENT: Final[dict[str, Any]] = {"reason": "", "message": "", "waiting": False}
_NOT_TELLING: Final = ("ContainerCreating", "PodInitializing")
_PASSING_SECONDS: Final = 5.0
"""A warning about a younger pod is not told: kubelet and scheduler try again, within a few seconds."""


@dataclass(frozen=True)
class Warned:
    """The last warning event about an object; `time` as Kubernetes writes it."""

    reason: str
    message: str
    time: str


class SlimMetadata(TypedDict):
    """Of a Job or a pod, as Kubernetes has it, but `owners` are the uids of the ownerReferences. The
    `annotations` of a pod hold its attempt, once that has been counted, and `FAILURES`.
    """

    name: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    creationTimestamp: str
    deletionTimestamp: str | None
    owners: list[str]


class SlimJobMetadata(SlimMetadata):
    """Of a Job."""

    namespace: str


class SlimJob(TypedDict):
    """A Job without its pod template and the copy of the run's file, which are nearly all of it. What they
    say of beginning and end stands in `cleanPolicy`, `startingDeadline`, `inQueue` (or in a gang: it may wait
    for long) and `leaves`; `requests` is what its pods ask for, by resource, and `board` whether the run has
    a TensorBoard.
    """

    metadata: SlimJobMetadata
    spec: Mapping[str, Any]
    status: Mapping[str, Any]
    cleanPolicy: str
    startingDeadline: float | None
    inQueue: bool
    leaves: bool
    requests: Mapping[str, str]
    board: bool


class SlimPodStatus(TypedDict):
    """`containerStatuses` has the program's container alone, or nothing before that was made."""

    phase: str | None
    startTime: str | None
    reason: str
    message: str
    containerStatuses: Sequence[Mapping[str, Any]]


class SlimPod(TypedDict):
    """What of a pod the status is made of: 1 KB less for each."""

    metadata: SlimMetadata
    spec: Mapping[str, Any]
    status: SlimPodStatus


class SlimEventMetadata(TypedDict):
    """`about` is the uid of the object that a warning is about, or what `_claim` makes of a claim's name."""

    about: str


class SlimEvent(TypedDict):
    """A warning; `time` is when it was last given."""

    metadata: SlimEventMetadata
    reason: str
    message: str
    time: str


class SlimUid(TypedDict):
    """All that is needed of the metadata."""

    uid: str


class SlimWorkload(TypedDict):
    """Kueue's object for the run: `words` say why it is not admitted, "" when it is."""

    metadata: SlimUid
    words: str


def slim_job(job: Object) -> SlimJob:
    """What of a Job the state of its run needs."""
    metadata = job["metadata"]
    annotations = dict(annotations_of(job))
    annotations.pop(SPEC_ANNOTATION, None)
    return {
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "labels": {
                name: value for name, value in labels_of(job).items() if not name.startswith(_JOBSETS_OWN)
            },
            "annotations": annotations,
            "creationTimestamp": metadata.get("creationTimestamp"),
            "deletionTimestamp": metadata.get("deletionTimestamp"),
            "owners": [owner["uid"] for owner in metadata.get("ownerReferences") or ()],
        },
        "spec": {key: value for key, value in job["spec"].items() if key not in ("template", "selector")},
        "status": _status(job, annotations),
        "cleanPolicy": clean_policy(job),
        "startingDeadline": starting_deadline(job),
        "inQueue": bool({"gang", "queue"} & (submitted(job, "spec", "scheduling") or {}).keys()),
        "leaves": leaves(job),
        "requests": _requests(job),
        "board": submitted(job, "spec", "tensorboard") is not None,
    }


def _requests(job: Object) -> Mapping[str, str]:
    """Of the program's container."""
    pod = (job["spec"].get("template") or {}).get("spec") or {}
    containers = [each for each in pod.get("containers") or () if each.get("name") == CONTAINER]
    return ((containers[0].get("resources") or {}).get("requests") or {}) if containers else {}


def _status(job: Object, annotations: Mapping[str, str]) -> Object:
    status = job.get("status") or {}
    stopped = annotations.get(STOPPED_ANNOTATION)
    if stopped is None:
        return dict(status)
    reason, _, message = stopped.partition(": ")
    conditions = [
        {**condition, "reason": reason, "message": message}
        if condition.get("reason") == "DeadlineExceeded"
        else condition
        for condition in status.get("conditions") or ()
    ]
    return {**status, "conditions": conditions}


def slim_pod(pod: Object) -> SlimPod:
    """What of a pod the state of its run needs."""
    metadata = pod["metadata"]
    labels = labels_of(pod)
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    return {
        "metadata": {
            "name": metadata["name"],
            "uid": metadata["uid"],
            "labels": {key: labels[key] for key in (JOB_LABEL, INDEX_KEY, ROLE_LABEL) if key in labels},
            "annotations": {key: text for key, text in annotations_of(pod).items() if key in FAILURES},
            "creationTimestamp": metadata.get("creationTimestamp"),
            "deletionTimestamp": metadata.get("deletionTimestamp"),
            "owners": [owner["uid"] for owner in metadata.get("ownerReferences") or ()],
        },
        "spec": {"nodeName": spec.get("nodeName"), "claims": _claims(spec)},
        "status": _slim_status(pod, status),
    }


def _claims(spec: Object) -> list[str]:
    claims = (volume.get("persistentVolumeClaim") for volume in spec.get("volumes") or ())
    return [claim["claimName"] for claim in claims if claim]


def _slim_status(pod: Object, status: Object) -> SlimPodStatus:
    reason, message = status.get("reason") or "", status.get("message") or ""
    for condition in status.get("conditions") or ():
        kind, holds = condition["type"], condition["status"] == "True"
        if condition.get("reason") in PASSING:
            continue
        if (kind, holds) in (("PodScheduled", False), ("DisruptionTarget", True)):
            reason, message = reason or condition.get("reason", ""), message or condition.get("message", "")
    state = dict(_state(status.get("containerStatuses"), CONTAINER))
    if (state.get("waiting") or {}).get("reason") in _NOT_TELLING:
        state = {}
    if not state:
        # An init container, of a sidecar say, that does not come up.
        for each in status.get("initContainerStatuses") or ():
            waiting = (each.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") and waiting["reason"] not in _NOT_TELLING:
                reason, message = waiting["reason"], f"{each['name']}: {waiting.get('message', '')}"
    terminated = state.get("terminated")
    if terminated is not None:
        state["terminated"] = _why(pod, terminated, reason, message)
    elif waiting := state.get("waiting"):
        own_reason, own_message = for_user(waiting.get("reason") or "", waiting.get("message") or "")
        state["waiting"] = {**waiting, "reason": own_reason, "message": own_message}
    reason, message = for_user(reason, message)
    return {
        "phase": status.get("phase"),
        "startTime": status.get("startTime"),
        "reason": reason,
        "message": message,
        "containerStatuses": [{"state": state}] if state else [],
    }


def _why(pod: Object, terminated: Object, reason: str, message: str) -> Object:
    if terminated.get("reason") == "OOMKilled":
        limit = _memory_limit(pod)
        return {**terminated, "message": f"out of memory{f': its limit is {limit}' if limit else ''}"}
    if reason and terminated.get("exitCode"):
        # The pod was evicted or preempted, or its node was shut down. The container's own state just says
        # that it was killed.
        return {**terminated, "reason": reason, "message": message or reason}
    own_reason, own_message = for_user(terminated.get("reason") or "", terminated.get("message") or "")
    return {**terminated, "reason": own_reason, "message": own_message}


def _state(containers: Sequence[Object] | None, name: str) -> Object:
    for each in containers or ():
        if each.get("name") == name:
            state: Object = each.get("state") or {}
            return state
    return {}


def _memory_limit(pod: Object) -> str:
    for container in (pod.get("spec") or {}).get("containers") or ():
        if container.get("name") == CONTAINER:
            limits = (container.get("resources") or {}).get("limits") or {}
            return str(limits.get("memory") or "")
    return ""


def find_primary(jobs: Iterable[Object]) -> Object | None:
    """The primary Job of a run's."""
    return next(filter(is_primary, jobs), None)


class RunState:
    """A run's Jobs and pods as they are now, slim. `primary` is the uid of its primary Job: another run of
    that name is another run.
    """

    _root_kind = "Job"
    """The kind of the root object."""

    def __init__(self, primary: str) -> None:
        self.deleted = False
        """The root object was deleted. The last known state is kept."""
        self.queue = ""
        """The queue of Kueue's that admits the run; "" if there is none."""
        self.dying_namespace = ""
        """The run's namespace once it is being deleted: no pod can be made in it, and no event either."""
        self._workload: SlimWorkload | None = None
        self._primary = primary
        self._jobs: dict[str, SlimJob] = {}
        self._pods: dict[str, SlimPod] = {}
        self._gone: dict[tuple[str, str], SlimPod] = {}
        """The last pod of each task that has none now. Without it, the pod before would be taken for the
        latest.
        """
        self._attempts: dict[str, int] = {}
        """The number of each pod among those of its task, also of pods that are gone."""
        self._counts: Counter[tuple[str, str]] = Counter()
        self._numbers: dict[str, int] = {}
        """The order in which the pods were seen, since their creation times are whole seconds."""
        self._warned: dict[str, Warned] = {}

    def replace(self, kind: str, items: Iterable[Any]) -> None:
        """These are all objects of a kind, slim."""
        objects = list(items)
        if kind == self._root_kind and all(item["metadata"]["uid"] != self._primary for item in objects):
            self.deleted = True
        if self.deleted:
            return
        if kind == "Workload":
            self._workload = None
        elif kind == "Job":
            self._jobs.clear()
        elif kind == "Pod":
            self._pods.clear()
        for item in objects:
            self.put(kind, item)

    def put(self, kind: str, item: Any) -> None:
        """An object is new or has changed. `item` is the slim object of this `kind`."""
        metadata = item["metadata"]
        if self.deleted:
            return
        if kind == "Event":
            self._warned[metadata["about"]] = Warned(item["reason"], item["message"], item["time"])
        elif kind == "Workload":
            self._workload = item
        elif kind == "Job" and self._is_ours(item):
            self._jobs[metadata["uid"]] = item
        elif kind == "Pod":
            self._numbers.setdefault(metadata["uid"], len(self._numbers))
            self._pods[metadata["uid"]] = item
            self._gone.pop(_task(item), None)

    def _is_ours(self, job: SlimJob) -> bool:
        """Whether the root object of the run owns it, or nothing does, as of objects applied by hand."""
        uid, owners = job["metadata"]["uid"], job["metadata"]["owners"]
        return self._primary in (uid, *owners) or not (owners or is_primary(job))

    def drop(self, kind: str, item: Any) -> None:
        """An object was deleted. `item` is its last state, slim."""
        if item["metadata"].get("uid") == self._primary:
            # Its end and its deletion may come in one message, if its ttlSecondsAfterFinished is short.
            self.put(kind, item)
            self.deleted = True
        elif kind == "Workload":
            self._workload = None
        elif kind == "Job" and not self.deleted:
            self._jobs.pop(item["metadata"]["uid"], None)
        elif kind == "Pod" and not self.deleted:
            known = self._pods.pop(item["metadata"]["uid"], item)
            self._gone[_task(item)] = known if has_ended(known) else _cut_short(item)

    @property
    def primary(self) -> SlimJob | None:
        """The primary Job; None before it was seen."""
        return self._jobs.get(self._primary)

    @property
    def jobs(self) -> list[SlimJob]:
        """The run's Jobs, the primary first, then by role."""
        return sorted(self._jobs.values(), key=self._order)

    def _order(self, job: SlimJob) -> tuple[bool, int, str]:
        role = job["metadata"]["labels"].get(ROLE_LABEL, "")
        number = ROLES.index(role) if role in ROLES else len(ROLES)
        return not is_primary(job), number, role

    def pods(self) -> list[SlimPod]:
        """The pods of these Jobs, oldest first. Each has the annotation `attempt`, its number among the pods
        of its index.
        """
        known = [*self._pods.values(), *self._gone.values()]
        pods = [pod for pod in known if any(uid in self._jobs for uid in pod["metadata"]["owners"])]
        pods.sort(key=self._age)
        for pod in pods:
            if (uid := pod["metadata"]["uid"]) not in self._attempts:
                self._attempts[uid] = self._counts[_task(pod)]
                self._counts[_task(pod)] += 1
            kept = pod["metadata"]["annotations"]
            pod["metadata"]["annotations"] = {**kept, ATTEMPT_ANNOTATION: str(self._attempts[uid])}
        return pods

    @property
    def has_starting_deadline(self) -> bool:
        """Whether the file says how long a start may take, and no queue or gang may take longer."""
        primary = self.primary
        return primary is not None and primary["startingDeadline"] is not None and not primary["inQueue"]

    @property
    def stands_still(self) -> bool:
        """Whether the run goes on, and none of its pods does, or those that do are being deleted."""
        primary = self.primary
        if primary is None or primary["spec"].get("suspend") or self.queue:
            return False
        going = any(
            pod["status"]["phase"] in ("Pending", "Running") and not pod["metadata"]["deletionTimestamp"]
            for pod in self._pods.values()
        )
        return not going and fold([primary], []).phase not in _TERMINAL

    def _age(self, pod: SlimPod) -> tuple[str, int]:
        return pod["metadata"]["creationTimestamp"], self._numbers[pod["metadata"]["uid"]]

    def status(self, records: Records) -> RunStatus:
        """The run as it was last seen. At least the primary was seen."""
        folded = fold(self.jobs, [self._with_warning(pod) for pod in self.pods()], records)
        folded = dataclasses.replace(folded, ended=_ended(folded))
        if self.dying_namespace and not folded.ended:
            lost = [
                role if role.phase in _TERMINAL else dataclasses.replace(role, phase=Phase.LOST)
                for role in folded.roles
            ]
            message = f"namespace {self.dying_namespace} is being deleted, and the run with it"
            return dataclasses.replace(
                folded, phase=Phase.LOST, ended=True, reason=_DYING, message=message, roles=tuple(lost)
            )
        roles = tuple(self._explain(role, folded.tasks) for role in folded.roles)
        if folded.phase in (Phase.PENDING, Phase.SUSPENDED) and (words := self._awaited()):
            shown = [
                dataclasses.replace(role, **_SILENT) if role.reason == _GATED else role for role in roles
            ]
            return dataclasses.replace(folded, roles=tuple(shown), reason=ADMISSION, message=words)
        stuck = next((role for role in roles if role.message and role.phase not in _TERMINAL), None)
        if stuck is None or folded.phase in _TERMINAL or folded.message:
            return dataclasses.replace(folded, roles=roles)
        return dataclasses.replace(folded, roles=roles, reason=stuck.reason, message=stuck.message)

    def _awaited(self) -> str:
        """Which admission the run waits for, "" if it waits for none."""
        if not self.queue or (self._workload is not None and not self._workload["words"]):
            return ""
        words = self._workload["words"] if self._workload is not None else ""
        return f"waits for admission by queue {self.queue}" + (f": {words}" if words else "")

    def _with_warning(self, pod: SlimPod) -> SlimPod:
        """The pod with its last warning event as reason, if it does not start and has no reason in its
        status.
        """
        status = pod["status"]
        if waits_for_claims(status["message"]):
            return self._with_claims_warning(pod)
        warned = self._warned.get(pod["metadata"]["uid"])
        if warned is None or warned.reason in IN_STATUS:
            return pod
        if status["phase"] != "Pending" or status["message"] or status["containerStatuses"]:
            return pod
        if 0 <= _between(pod["metadata"]["creationTimestamp"], warned.time) < _PASSING_SECONDS:
            return pod  # what is missing may come a moment later; the warning is repeated if not
        reason, message = for_user(warned.reason, warned.message)
        return {**pod, "status": {**status, "reason": reason, "message": message}}

    def _with_claims_warning(self, pod: SlimPod) -> SlimPod:
        """The pod with the reason why a claim of its has no volume, where that was said."""
        for claim in pod["spec"]["claims"]:
            if (warned := self._warned.get(_claim(claim))) is not None:
                _, message = for_user("FailedScheduling", f"claim {claim}: {warned.message}")
                return {**pod, "status": {**pod["status"], "message": message}}
        return pod

    def _cannot_make_pods(self, role: RoleStatus) -> Warned | None:
        """The last warning about the Job, where pods are missing and none was made since."""
        uid = next((uid for uid, job in self._jobs.items() if job["metadata"]["name"] == role.job), "")
        warned = self._warned.get(uid)
        if warned is None or role.active >= role.desired - role.succeeded:
            return None
        made = [
            pod["metadata"]["creationTimestamp"]
            for pod in self._pods.values()
            if uid in pod["metadata"]["owners"]
        ]
        return warned if warned.time >= max(made, default="") else None

    def _asked(self, resource: str) -> str:
        """What all pods of the run ask for of a resource: they may not fit together."""
        asked = []
        for job in self.jobs:
            count, each = job["spec"].get("completions") or 1, job["requests"].get(resource)
            if each is not None:
                role = job["metadata"]["labels"].get(ROLE_LABEL, "")
                asked.append(f"{role} {each}" if count == 1 else f"{role} {count} x {each}")
        if asked and any(job["board"] for job in self.jobs):
            asked.append("and its TensorBoard")
        return f"; this run asks for {', '.join(asked)}" if asked else ""

    def _explain(self, role: RoleStatus, tasks: Sequence[TaskStatus]) -> RoleStatus:
        """The role with the reason why its pods do not start: the most frequent one, and how many pods have
        it.
        """
        if role.phase in (*_TERMINAL, Phase.SUSPENDED) or role.message:
            return role
        warned = self._cannot_make_pods(role)
        if warned is not None:
            reason, message = for_user(warned.reason, warned.message)
            return dataclasses.replace(role, reason=reason, message=message, waiting=True)
        waiting = Counter(
            (task.reason, task.message)
            for task in tasks
            if task.role == role.role and task.phase is Phase.PENDING and task.reason and not task.exit_code
        )
        if not waiting:
            return role
        (reason, message), count = waiting.most_common(1)[0]
        if reason == _GATED and self.queue:
            message = f"waits for admission by queue {self.queue}"
        if resource := lacking(message):
            message += self._asked(resource)
        if role.desired > 1:
            message = f"{count} of {role.desired} tasks: {message or reason}"
        return dataclasses.replace(role, reason=reason, message=message or reason, waiting=True)


def slim_event(event: Object) -> SlimEvent:
    """What of a warning the state of a run needs."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    about = event.get("involvedObject") or {}
    is_claim = about.get("kind") == "PersistentVolumeClaim"
    return {
        "metadata": {"about": _claim(about.get("name", "")) if is_claim else about.get("uid", "")},
        "reason": event.get("reason") or "",
        "message": event.get("message") or "",
        "time": next(filter(None, times), ""),
    }


def _claim(name: str) -> str:
    return f"claim {name}"


def has_ended(pod: SlimPod) -> bool:
    """Whether the pod has ended by itself."""
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def _between(earlier: str, later: str) -> float:
    """Seconds; -1 where a time is not known."""
    first, second = seconds(earlier), seconds(later)
    return -1.0 if first is None or second is None else second - first


def _cut_short(pod: SlimPod) -> SlimPod:
    metadata = pod["metadata"]
    deleted = metadata["deletionTimestamp"] or metadata["creationTimestamp"]
    return {
        **pod,
        "metadata": {**metadata, "deletionTimestamp": deleted},
        "status": {**pod["status"], "phase": "Failed"},
    }


def _task(pod: SlimPod) -> tuple[str, str]:
    labels = pod["metadata"]["labels"]
    return labels.get(JOB_LABEL, ""), labels.get(INDEX_KEY, "")


def _ended(status: RunStatus) -> bool:
    """Whether the run has ended: the primary has, and every other role has ended or is suspended."""
    return status.phase in _TERMINAL and all(
        role.phase in (*_TERMINAL, Phase.SUSPENDED) for role in status.roles
    )
