"""What a user needs to be allowed in their namespace, and nothing in the cluster beside it."""

from __future__ import annotations

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
]
"""The rules of the least Role. `create` and `patch` are what server-side apply needs, `deletecollection` is
for a run that is stopped at once; without the events it is not known why a pod is not made.
"""
