"""Where the API server has each kind of object."""

from __future__ import annotations

from typing import Final

_RESOURCES: Final = {
    "ConfigMap": ("api/v1", "configmaps"),
    "Deployment": ("apis/apps/v1", "deployments"),
    "Event": ("api/v1", "events"),
    "Job": ("apis/batch/v1", "jobs"),
    "NetworkPolicy": ("apis/networking.k8s.io/v1", "networkpolicies"),
    "PersistentVolumeClaim": ("api/v1", "persistentvolumeclaims"),
    "Pod": ("api/v1", "pods"),
    "ResourceQuota": ("api/v1", "resourcequotas"),
    "Service": ("api/v1", "services"),
}
_GROUPS: Final = {
    "Deployment": "deployments.apps",
    "Job": "jobs.batch",
    "NetworkPolicy": "networkpolicies.networking.k8s.io",
}


def resource(kind: str) -> str:
    """As rights and refusals name it: `jobs.batch`."""
    return _GROUPS.get(kind) or _RESOURCES[kind][1]


def path_of(kind: str, namespace: str | None, name: str = "") -> str:
    """Of a kind in a namespace, None for all, or of one object."""
    api, plural = _RESOURCES[kind]
    space = f"/namespaces/{namespace}" if namespace is not None else ""
    return f"{api}{space}/{plural}" + (f"/{name}" if name else "")
