"""The fields of a TFJob and of its pod templates, and their types, as in its CRD."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from launcher.config.yaml_parser import FieldPath
from launcher.pod_spec import pod_fields

Problem = tuple[FieldPath, str]

TFJOB: Final[Mapping[str, Mapping[str, str]]] = {
    "TFJob": {
        "apiVersion": "str",
        "kind": "str",
        "metadata": "ObjectMeta",
        "spec": "TFJobSpec",
        "status": "object",
    },
    "TFJobSpec": {
        "runPolicy": "RunPolicy",
        "successPolicy": "str",
        "tfReplicaSpecs": "Dict[str, ReplicaSpec]",
        "enableDynamicWorker": "bool",
    },
    "ReplicaSpec": {"replicas": "int", "restartPolicy": "str", "template": "PodTemplateSpec"},
    "RunPolicy": {
        "cleanPodPolicy": "str",
        "ttlSecondsAfterFinished": "int",
        "activeDeadlineSeconds": "int",
        "backoffLimit": "int",
        "schedulingPolicy": "SchedulingPolicy",
        "suspend": "bool",
        "managedBy": "str",
    },
    "SchedulingPolicy": {
        "minAvailable": "int",
        "queue": "str",
        "minResources": "Dict[str, quantity]",
        "priorityClass": "str",
        "scheduleTimeoutSeconds": "int",
    },
}
"""For each type, its fields and their types; those of Kubernetes are in `launcher.pod_spec.pod_fields`."""

OLD_POLICY: Final = ("activeDeadlineSeconds", "backoffLimit", "cleanPodPolicy", "ttlSecondsAfterFinished")
"""The fields of runPolicy that were beside tfReplicaSpecs before runPolicy existed."""


class _Check(pod_fields.Check):
    def __init__(self) -> None:
        old = {name: TFJOB["RunPolicy"][name] for name in OLD_POLICY}
        super().__init__({**TFJOB, "TFJobSpec": {**TFJOB["TFJobSpec"], **old}})

    def unknown(self, name: str, kind: str) -> str:
        if kind == "TFJobSpec" and (name in TFJOB["RunPolicy"] or name == "schedulingPolicy"):
            return f"unknown field; it belongs in spec.runPolicy.{name}"
        return super().unknown(name, kind)


def problems(value: Mapping[str, Any]) -> list[Problem]:
    """Returns every field of a TFJob that is unknown or has a wrong value. A null counts as a field that is
    left out.
    """
    return list(_Check().problems(value, "TFJob", ()))


def without(value: Any, wrong: list[Problem]) -> Any:
    """Returns a copy of the value without these fields. A list with a wrong entry is removed as a whole, so
    that no other entry changes its place.
    """
    copy = json.loads(json.dumps(value))
    for path, _ in wrong:
        here = copy
        *parents, last = path
        while parents and isinstance(last, int):
            last = parents.pop()
        for part in parents:
            here = here[part] if _has(here, part) else None
        if isinstance(here, dict):
            here.pop(last, None)
    return copy


def without_nulls(value: Any) -> Any:
    """Returns a copy without the fields that are null, which count as left out."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _has(value: Any, part: str | int) -> bool:
    return part in value if isinstance(value, dict) else isinstance(value, list) and isinstance(part, int)
