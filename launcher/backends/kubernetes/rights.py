"""What a user needs to be allowed in their namespace, and nothing in the cluster beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_OBJECTS: Final = ["get", "list", "create", "patch", "delete"]

RULES: Final[list[dict[str, Any]]] = [
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": [*_OBJECTS, "watch"]},
    {
        "apiGroups": [""],
        "resources": ["services", "configmaps", "persistentvolumeclaims"],
        "verbs": _OBJECTS,
    },
    {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": _OBJECTS},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch", "deletecollection"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["list", "watch"]},
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": _OBJECTS},
    {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["get", "create"]},
]
"""The rules of the least Role. `create` and `patch` are what server-side apply needs, `deletecollection` is
for a run that is stopped at once and for cleanPolicy All; without the events it is not known why a pod is not
made. A Deployment is a TensorBoard's; a tunnel to it is asked for by a GET, for which newer Kubernetes wants
`create` too.
"""

OPTIONAL: Final[Mapping[tuple[str, str], str]] = {
    ("events", "list"): "why a pod is not made is not told",
    ("events", "watch"): "why a pod is not made is not told",
    ("pods", "deletecollection"): "neither a second Ctrl-C nor cleanPolicy All deletes pods",
    **{("deployments", verb): "a run with spec.tensorboard is refused" for verb in _OBJECTS},
    **{("pods/portforward", verb): "`tensorboard` opens no tunnel" for verb in ("get", "create")},
}
"""By resource and verb, what is lost without a right that a run does without."""


def role(namespace: str) -> dict[str, Any]:
    """The least Role, as an object to apply."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "tf-launcher", "namespace": namespace},
        "rules": RULES,
    }
