"""The API server's path of each kind of object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

_RESOURCES: Final = {
    "ConfigMap": ("api/v1", "configmaps"),
    "Deployment": ("apis/apps/v1", "deployments"),
    "Event": ("api/v1", "events"),
    "Job": ("apis/batch/v1", "jobs"),
    "JobSet": ("apis/jobset.x-k8s.io/v1alpha2", "jobsets"),
    "Lease": ("apis/coordination.k8s.io/v1", "leases"),
    "LocalQueue": ("apis/kueue.x-k8s.io/v1beta2", "localqueues"),
    "NetworkPolicy": ("apis/networking.k8s.io/v1", "networkpolicies"),
    "PersistentVolumeClaim": ("api/v1", "persistentvolumeclaims"),
    "Node": ("api/v1", "nodes"),
    "Pod": ("api/v1", "pods"),
    "PodGroup.scheduling.k8s.io": ("apis/scheduling.k8s.io/v1alpha2", "podgroups"),
    "PodGroup.scheduling.volcano.sh": ("apis/scheduling.volcano.sh/v1beta1", "podgroups"),
    "PodGroup.scheduling.x-k8s.io": ("apis/scheduling.x-k8s.io/v1alpha1", "podgroups"),
    "PodMonitor": ("apis/monitoring.coreos.com/v1", "podmonitors"),
    "ResourceQuota": ("api/v1", "resourcequotas"),
    "Service": ("api/v1", "services"),
    "TFJob": ("apis/kubeflow.org/v1", "tfjobs"),
    "Workload": ("apis/kueue.x-k8s.io/v1beta2", "workloads"),
}
OPTIONAL: Final = frozenset(
    {
        "Deployment",
        "JobSet",
        "PodGroup.scheduling.k8s.io",
        "PodGroup.scheduling.volcano.sh",
        "PodGroup.scheduling.x-k8s.io",
        "PodMonitor",
        "Workload",
    }
)
"""Kinds that not every run has. If the cluster does not know one, or the user has no right to it, the user's
runs have none.
"""


def kind_of(item: Mapping[str, Any]) -> str:
    """The object's kind, with its group behind it where several have one of that name."""
    kind = str(item["kind"])
    return kind if kind in _RESOURCES else f"{kind}.{str(item.get('apiVersion', '')).partition('/')[0]}"


def resource(kind: str) -> str:
    """As rights and refusals name it: `jobs.batch`."""
    api, plural = _RESOURCES[kind]
    group = api.split("/")[1] if api.startswith("apis/") else ""
    return f"{plural}.{group}" if group else plural


def api_of(kind: str) -> str:
    """The path at which the server lists the kinds of this group and version: `apis/batch/v1`."""
    return _RESOURCES[kind][0]


def plural_of(kind: str) -> str:
    """As its path names the kind."""
    return _RESOURCES[kind][1]


def owner_reference(kind: str, owner: Mapping[str, Any]) -> dict[str, Any]:
    """What an object says of its owner. The owner is not its controller, since a Job controls only pods; and
    blockOwnerDeletion would need rights on the owner's finalizers where OwnerReferencesPermissionEnforcement
    is on.
    """
    metadata, api = owner["metadata"], api_of(kind).partition("/")[2]
    return {"apiVersion": api, "kind": kind, "name": metadata["name"], "uid": metadata["uid"]}


def path_of(kind: str, namespace: str | None, name: str = "", part: str = "") -> str:
    """The path of a kind in a namespace (None: in all), of one object, or of a subresource, such as `log`.

    Names are quoted, so that none leads to another path. Raises ValueError for `.` and `..`, which quoting
    does not change.
    """
    api, plural = _RESOURCES[kind]
    space = f"/namespaces/{segment(namespace)}" if namespace is not None else ""
    return f"{api}{space}/{plural}" + (f"/{segment(name)}" if name else "") + (f"/{part}" if part else "")


def segment(name: str) -> str:
    """The name as one part of a path."""
    if name in ("", ".", ".."):
        raise ValueError(f"no part of a path: {name!r}")
    return quote(name, safe="", errors="replace")
