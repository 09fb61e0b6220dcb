"""The rights that a user needs in a namespace. No right on the whole cluster is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
"""What every run needs. `create` and `patch` are server-side apply's, `deletecollection` is for a run that is
stopped at once and for cleanPolicy All; without the events it is not known why a pod is not made.
"""

TENSORBOARD: Final = "Deployment"
MONITOR: Final = "PodMonitor"
TUNNEL: Final[dict[str, Any]] = {
    "apiGroups": [""],
    "resources": ["pods/portforward"],
    "verbs": ["get", "create"],
}
"""Needed to open the TensorBoard of a run, and by `stacks` and `profile`, and not to submit one. It is asked
for by a GET, for which newer Kubernetes wants `create` too.
"""

COPY: Final[list[dict[str, Any]]] = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}, TUNNEL]
"""For who copies a run's files from its claim by `cp`: it makes a pod, and asks it through a tunnel."""

EXTENSION_RULES: Final[Mapping[str, list[dict[str, Any]]]] = {
    TENSORBOARD: [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": _OBJECTS}, TUNNEL],
    "Workload": [
        {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": [*_OBJECTS, "watch"]},
        {
            "apiGroups": ["kueue.x-k8s.io"],
            "resources": ["workloads"],
            "verbs": ["get", "list", "patch", "delete", "watch"],
        },
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["localqueues"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]},
    ],
    "cp": COPY,
    "PodGroup.scheduling.k8s.io": [
        {"apiGroups": ["scheduling.k8s.io"], "resources": ["podgroups"], "verbs": _OBJECTS}
    ],
    "PodGroup.scheduling.volcano.sh": [
        {"apiGroups": ["scheduling.volcano.sh"], "resources": ["podgroups"], "verbs": _OBJECTS}
    ],
    "PodGroup.scheduling.x-k8s.io": [
        {"apiGroups": ["scheduling.x-k8s.io"], "resources": ["podgroups"], "verbs": _OBJECTS}
    ],
    MONITOR: [{"apiGroups": ["monitoring.coreos.com"], "resources": ["podmonitors"], "verbs": _OBJECTS}],
}
"""What a run with `spec.tensorboard`, `spec.scheduling.gang` or `spec.monitoring.podMonitor` needs besides,
by the kind that it is made with; and what the command `cp` does.
"""

OPTIONAL: Final[Mapping[tuple[str, str], str]] = {
    ("events", "list"): "why a pod is not made is not told",
    ("events", "watch"): "why a pod is not made is not told",
    ("pods", "deletecollection"): "neither a second Ctrl-C nor cleanPolicy All deletes pods",
    **{
        ("pods/portforward", verb): "`tensorboard`, `stacks` and `profile` open no tunnel"
        for verb in TUNNEL["verbs"]
    },
}
"""Rights that a run can do without, by resource and verb, and what does not work without them."""

CONTROLLER: Final[list[dict[str, Any]]] = [
    {
        "apiGroups": ["kubeflow.org"],
        "resources": ["tfjobs"],
        "verbs": ["get", "list", "watch", "patch", "delete"],
    },
    {"apiGroups": ["kubeflow.org"], "resources": ["tfjobs/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list"]},
]
"""What the controller needs besides, in each namespace whose TFJobs it trains. A lease shows it the
training-operator.
"""

ELECTION: Final[list[dict[str, Any]]] = [
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}
]
"""What it needs in its own namespace, where its replicas elect the one that leads."""


def of_controller() -> list[dict[str, Any]]:
    """All that the controller needs in a namespace, a rule for each resource. No TFJob has a TensorBoard, or
    metrics.
    """
    kinds = [kind for kind in EXTENSION_RULES if kind not in (TENSORBOARD, MONITOR, "cp")]
    verbs: dict[tuple[str, str], dict[str, None]] = {}
    for rule in (*rules(kinds), *CONTROLLER):
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                verbs.setdefault((group, resource), {}).update(dict.fromkeys(rule["verbs"]))
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": list(resource_verbs)}
        for (group, resource), resource_verbs in verbs.items()
    ]


def rules(extensions: Iterable[str]) -> list[dict[str, Any]]:
    """The rules of the least Role for runs with these extensions."""
    role_rules = list(RULES)
    for rule in (rule for kind in extensions for rule in EXTENSION_RULES[kind]):
        if rule not in role_rules:
            role_rules.append(rule)
    return role_rules


def role(namespace: str, extensions: Iterable[str] = tuple(EXTENSION_RULES)) -> dict[str, Any]:
    """The least Role, as an object to apply; without `extensions`, for any run."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "tf-launcher", "namespace": namespace},
        "rules": rules(extensions),
    }
