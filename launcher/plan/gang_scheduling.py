"""Which scheduler or queue starts the run's pods together, and how many of them must start at once. Pure.

Sources: https://volcano.sh/en/docs/podgroup/, https://scheduler-plugins.sigs.k8s.io/docs/plugins/coscheduling/,
https://kueue.sigs.k8s.io/docs/tasks/run/plain_pods/,
https://kubernetes.io/docs/concepts/scheduling-eviction/gang-scheduling/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from launcher.config.spec import Gang, RoleName, Spec
from launcher.config.yaml_parser import FieldPath
from launcher.lists_and_counts import listed
from launcher.object_names import GROUP_LABEL, QUEUE_LABEL
from launcher.plan import roles
from launcher.plan.topology import Topology, templates
from worker.contract.strategies import Loss, loss
from worker.contract.task_names import EXTRA_WORKER

SCHEDULERS: Final[dict[Gang, str]] = {
    "Volcano": "volcano",
    "Coscheduling": "scheduler-plugins-scheduler",
}
"""The scheduler's name for each kind of gang, as its own installation sets it."""


API_VERSIONS: Final[dict[Gang, str]] = {
    "Volcano": "scheduling.volcano.sh/v1beta1",
    "Coscheduling": "scheduling.x-k8s.io/v1alpha1",
    "Kubernetes": "scheduling.k8s.io/v1alpha2",
}
"""Of the PodGroup."""


def broken(topology: Topology) -> Iterator[tuple[FieldPath, str]]:
    """What is wrong with queue and gang together."""
    cluster = topology.cluster
    spec = cluster.spec
    scheduling = spec.scheduling
    given: list[tuple[FieldPath, Mapping[str, str]]] = [(("metadata", "labels"), cluster.metadata.labels)]
    for name, role in templates(spec):
        if role is not None:
            given.append((("spec", name, "jobMetadata", "labels"), role.job_metadata.labels))
    for at, labels in given:
        if QUEUE_LABEL in labels:
            message = "Kueue would admit each Job by itself: name the queue in spec.scheduling.queue"
            yield (*at, QUEUE_LABEL), message
    here: FieldPath = ("spec", "scheduling", "queue")
    if scheduling.gang == "Kueue" and scheduling.queue is None:
        yield here, "missing: Kueue admits a run by its queue; name a LocalQueue of the run's namespace"
    if scheduling.gang in ("Coscheduling", "Kubernetes") and scheduling.queue is not None:
        yield here, f"{scheduling.gang} has no queues: remove it, or use gang: Kueue or Volcano"
    owners: dict[str, tuple[Gang, ...]] = {
        "min_member": ("Volcano", "Coscheduling", "Kubernetes"),
        "min_resources": ("Volcano", "Coscheduling"),
        "schedule_timeout_seconds": ("Coscheduling",),
    }
    for field, known in owners.items():
        if getattr(scheduling, field) and roles.gang(spec) not in known:
            alias = type(scheduling).model_fields[field].alias or field
            yield ("spec", "scheduling", alias), f"it is for gang: {listed(known, last='or')}: remove it"
    most = sum(role.replicas for role in topology.roles if role.name != "evaluator")
    if roles.gang(spec) in API_VERSIONS and (scheduling.min_member or 0) > most:
        message = f"expected at most {most}: more tasks there are not, the evaluator apart"
        yield ("spec", "scheduling", "minMember"), message


def queue_labels(spec: Spec) -> dict[str, str]:
    """The labels and annotations that tell Kueue what to admit, and from which queue."""
    if roles.gang(spec) != "Kueue" or spec.scheduling.queue is None:
        return {}
    return {QUEUE_LABEL: spec.scheduling.queue}


def scheduler_name(spec: Spec) -> str | None:
    """The scheduler of all the run's pods, None for the cluster's own."""
    gang = roles.gang(spec)
    return spec.scheduling.scheduler_name or (SCHEDULERS.get(gang) if gang is not None else None)


def members(topology: Topology) -> dict[RoleName, int]:
    """How many tasks of each role must run for the strategy to make progress.

    One of a role whose tasks do each other's work: a coordinator uses the other workers when they start. Of
    elastic tasks as many as the file says; none of a role that the training does not need.
    """
    needed: dict[RoleName, int] = {}
    for role in topology.roles:
        lost = loss(topology.cluster.spec.strategy, role.name)
        if role.min_replicas is not None:
            needed[role.name] = role.min_replicas
        elif lost is not Loss.NOTHING:
            needed[role.name] = 1 if lost is Loss.SPARED else role.replicas
    return needed


def membership(topology: Topology, role: RoleName) -> tuple[dict[str, str], dict[str, str]]:
    """The labels and annotations that make a pod of the role a member of its group.

    Kueue takes each Job for a workload of its own; one is made of many by a group of plain pods, who makes
    them being of no matter, or by a JobSet, whose pods bear no such labels.
    """
    gang = roles.gang(topology.cluster.spec)
    if gang == "Kueue" and not topology.jobset:
        labels = queue_labels(topology.cluster.spec)
        if role == EXTRA_WORKER:
            return labels, {}  # each a workload of its own
        total = sum(each.replicas for each in topology.roles if each.name != EXTRA_WORKER)
        return {**labels, GROUP_LABEL: topology.run}, {"kueue.x-k8s.io/pod-group-total-count": str(total)}
    if not _is_member(topology, role):
        return {}, {}
    if gang == "Volcano":
        return {}, {"scheduling.k8s.io/group-name": topology.run, "volcano.sh/task-spec": role}
    if gang == "Coscheduling":
        return {"scheduling.x-k8s.io/pod-group": topology.run}, {}
    return {}, {}


def _is_member(topology: Topology, role: RoleName) -> bool:
    """Whether the gang waits for the role: the training does not need the others."""
    return loss(topology.cluster.spec.strategy, role) is not Loss.NOTHING


def scheduling_group(topology: Topology, role: RoleName) -> dict[str, str] | None:
    """The pod's field that makes it a member of the PodGroup of Kubernetes itself; None where it is none."""
    if roles.gang(topology.cluster.spec) != "Kubernetes" or not _is_member(topology, role):
        return None
    return {"podGroupName": topology.run}


def gates(topology: Topology) -> list[dict[str, str]]:
    """The scheduling gates of a pod. Kueue's webhook would add its own; where that does not answer, no pod
    must start unadmitted.
    """
    alone = roles.gang(topology.cluster.spec) == "Kueue" and not topology.jobset
    return [{"name": "kueue.x-k8s.io/admission"}] if alone else []


def disruptions(topology: Topology) -> list[dict[str, str]]:
    """The conditions of a pod that was taken away, besides Kubernetes' own: no failure of its task."""
    return [{"type": "TerminationTarget", "status": "True"}] if gates(topology) else []


def pod_group(topology: Topology) -> dict[str, object] | None:
    """The PodGroup's apiVersion and spec; None where there is none."""
    spec = topology.cluster.spec
    gang = roles.gang(spec)
    needed = members(topology)
    scheduling = spec.scheduling
    if gang == "Kubernetes":
        count = scheduling.min_member or sum(needed.values())
        policy = {"schedulingPolicy": {"gang": {"minCount": count}}}
        return {"apiVersion": API_VERSIONS[gang], "spec": policy}
    fields: dict[str, object] = {"minMember": sum(needed.values())}
    given: dict[str, object] = {"minMember": scheduling.min_member}
    given["minResources"] = scheduling.min_resources or None
    if gang == "Volcano":
        if scheduling.min_member is None:
            # Otherwise any four pods would count, such as four workers without a chief and a ps.
            fields["minTaskMember"] = needed
        given |= {"queue": scheduling.queue, "priorityClassName": scheduling.priority_class_name}
    else:
        given["scheduleTimeoutSeconds"] = scheduling.schedule_timeout_seconds
    fields |= {name: value for name, value in given.items() if value is not None}
    if gang is None or gang not in API_VERSIONS:
        return None
    return {"apiVersion": API_VERSIONS[gang], "spec": fields}
