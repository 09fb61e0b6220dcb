"""Which queues, controllers and schedulers of other projects a cluster has, and whether they work: each is
asked for something that only it does.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from launcher.plan.gang_scheduling import SCHEDULERS
from tests.api.plain_requests import PATHS, Api, wait_for

SECONDS: Final = 30
"""How long a peer has for its answer."""

Object = dict[str, Any]

JOBSETS: Final = "apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
KUEUE: Final = "apis/kueue.x-k8s.io/v1beta2"
_POD: Final = {
    "securityContext": {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
    "automountServiceAccountToken": False,
    "restartPolicy": "Never",
}
_CONTAINER: Final = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


class MissingError(Exception):
    """The cluster does not have the peer; says what was looked for, and what was found."""


@dataclass(frozen=True)
class Peer:
    """A project that a run may be handed to. `ask` has it do something in a namespace, and returns in words
    what it did; raises MissingError.
    """

    name: str
    group: str
    """The API group that its definitions have."""
    resource: str
    """The resource that the launcher uses."""
    ask: Callable[[Api, str, str], str]
    """Of the API server, a namespace, and an image that its pods may name."""

    def found(self, api: Api, namespace: str, image: str) -> str:
        """Says what was found. Raises MissingError."""
        versions = served(api, self.group, self.resource)
        began = time.monotonic()
        answer = self.ask(api, namespace, image)
        return f"{self.group}/{', '.join(versions)}; {answer} in {time.monotonic() - began:.1f} s"


def served(api: Api, group: str, resource: str) -> list[str]:
    """The versions in which the cluster has the resource. Raises MissingError if there is none."""
    answer = api.request("GET", f"apis/{group}")
    if answer.status == 404:
        raise MissingError(f"looked for the API group {group}: the cluster does not have it")
    assert answer.status == 200, answer.body
    versions = [str(each["version"]) for each in answer.body["versions"]]
    of = {version: api.request("GET", f"apis/{group}/{version}").body["resources"] for version in versions}
    having = [version for version in versions if any(each["name"] == resource for each in of[version])]
    if not having:
        names = sorted({each["name"] for some in of.values() for each in some if "/" not in each["name"]})
        raise MissingError(f"looked for {resource}.{group}: the cluster has only {', '.join(names)} of it")
    return having


def made(api: Api, path: str, item: Object) -> Object:
    """Creates the object, and returns it. Fails if the server refuses it."""
    answer = api.request("POST", path, item, fieldValidation="Strict")
    assert answer.status == 201, answer.body.get("message")
    return answer.body


def _ask_kueue(api: Api, namespace: str, image: str) -> str:
    """A ClusterQueue becomes active when the controller has seen its flavor."""
    del namespace, image
    name = f"tf-launcher-{uuid.uuid4().hex[:8]}"
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name}}
    flavor_path, queue_path = f"{KUEUE}/resourceflavors", f"{KUEUE}/clusterqueues"
    _created(api, flavor_path, flavor, "Kueue")
    try:
        _created(api, queue_path, cluster_queue(name, {"cpu": "1"}), "Kueue")
        active = wait_for(lambda: _condition(api, f"{queue_path}/{name}", "Active") == "True", SECONDS)
        if not active:
            raise MissingError(
                f"made a ClusterQueue: no controller made it active in {SECONDS} s; is Kueue's running?"
            )
    finally:
        api.request("DELETE", f"{queue_path}/{name}")
        api.request("DELETE", f"{flavor_path}/{name}")
    return "its controller made a ClusterQueue active"


def cluster_queue(name: str, quota: dict[str, str], **spec: Any) -> Object:
    """A ClusterQueue with this quota of the flavor of the same name."""
    flavor = {"name": name, "resources": [{"name": key, "nominalQuota": of} for key, of in quota.items()]}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": list(quota), "flavors": [flavor]}],
            **spec,
        },
    }


def _ask_jobset(api: Api, namespace: str, image: str) -> str:
    """The controller makes the Jobs of a suspended JobSet, too."""
    pod = {"spec": {**_POD, "containers": [{"name": "main", "image": image, "securityContext": _CONTAINER}]}}
    item = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "asked"},
        "spec": {
            "suspend": True,
            "replicatedJobs": [{"name": "main", "replicas": 1, "template": {"spec": {"template": pod}}}],
        },
    }
    path = JOBSETS.format(namespace)
    _created(api, path, item, "JobSet")
    try:
        if not wait_for(lambda: api.list("Job", namespace), SECONDS):
            raise MissingError(
                f"made a JobSet: no controller made its Job in {SECONDS} s; is JobSet's running?"
            )
    finally:
        api.request("DELETE", f"{path}/asked", {"propagationPolicy": "Background"})
    return "its controller made a JobSet's Job"


def _ask_scheduler(scheduler: str) -> Callable[[Api, str, str], str]:
    """A scheduler gives a pod a node, or says why it does not."""

    def ask(api: Api, namespace: str, image: str) -> str:
        name = f"asked-{uuid.uuid4().hex[:8]}"
        container = {"name": "main", "image": image, "command": ["true"], "securityContext": _CONTAINER}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {**_POD, "schedulerName": scheduler, "containers": [container]},
        }
        answer = api.create(pod, namespace)
        assert answer.status == 201, answer.body
        path = f"{PATHS['Pod'].format(namespace)}/{name}"
        try:
            if not wait_for(lambda: _condition(api, path, "PodScheduled"), SECONDS):
                raise MissingError(
                    f"made a pod with schedulerName {scheduler}: no scheduler took it up in {SECONDS} s; "
                    "is it running, under that name?"
                )
        finally:
            api.request("DELETE", path, {"gracePeriodSeconds": 0})
        return f"scheduler {scheduler} took up a pod"

    return ask


def _created(api: Api, path: str, item: Object, peer: str) -> None:
    answer = api.request("POST", path, item, fieldValidation="Strict")
    if answer.status != 201:
        # Its webhook does not answer, for one.
        raise MissingError(f"made a {item['kind']}: {peer} refused it: {answer.body.get('message')}")


def _condition(api: Api, path: str, kind: str) -> str:
    """The status of the object's condition, "" while it has none."""
    status = api.request("GET", path).body.get("status") or {}
    return next((str(each["status"]) for each in status.get("conditions") or () if each["type"] == kind), "")


PEERS: Final = {
    peer.name: peer
    for peer in (
        Peer("Kueue", "kueue.x-k8s.io", "workloads", _ask_kueue),
        Peer("JobSet", "jobset.x-k8s.io", "jobsets", _ask_jobset),
        Peer("Volcano", "scheduling.volcano.sh", "podgroups", _ask_scheduler(SCHEDULERS["Volcano"])),
        Peer("Coscheduling", "scheduling.x-k8s.io", "podgroups", _ask_scheduler(SCHEDULERS["Coscheduling"])),
    )
}
