"""Kubernetes' strategic merge, as far as a pod template goes: lists of named things are put together by name.

Source: https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/ and the
`patchMergeKey` of each field in the API reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MERGE_KEYS: Final[Mapping[str, str]] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "resourceClaims": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}
"""The key by which entries of a list are the same. Any other list is replaced whole."""


def strategic_merge(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `patch` over it; neither is changed. A null in the patch removes the field."""
    merged = dict(base)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(name, merged.get(name), value)
    return merged


def _merge(name: str, old: Any, new: Any) -> Any:
    if isinstance(new, Mapping):
        return strategic_merge(old if isinstance(old, Mapping) else {}, new)
    key = MERGE_KEYS.get(name)
    if key is None or not isinstance(old, list) or not isinstance(new, list):
        return new
    entries = list(old)
    places = {entry.get(key): place for place, entry in enumerate(entries) if isinstance(entry, Mapping)}
    for entry in new:
        if isinstance(entry, Mapping) and entry.get(key) in places:
            place = places[entry[key]]
            entries[place] = strategic_merge(entries[place], entry)
        else:
            entries.append(entry)
    return entries
