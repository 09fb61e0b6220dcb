"""Kubernetes' strategic merge patch, as far as a pod template needs it: lists of named entries are merged by
name, and `$patch` and `$retainKeys` change that.

Entries that the patch adds to a list come last; an API server puts them first. So a variable may refer to the
launcher's variables, and the program's container stays the first.

Source:
https://github.com/kubernetes/community/blob/master/contributors/devel/sig-api-machinery/strategic-merge-patch.md
and the `x-kubernetes-patch-merge-key` of each field in the API server's OpenAPI.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

MERGE_KEYS: Final[Mapping[str, str]] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "ownerReferences": "uid",
}
"""The key that identifies an entry of a list."""

SETS: Final = frozenset({"finalizers"})
"""Lists of plain values that are united. Any other list is replaced as a whole."""

DIRECTIVE: Final = "$patch"
RETAIN: Final = "$retainKeys"

_MAPS: Final = (
    "labels",
    "annotations",
    "matchLabels",
    "nodeSelector",
    "limits",
    "requests",
    "volumeAttributes",
)
"""Maps with the user's own keys, one of which may equal the name of a list elsewhere."""

FieldPath = tuple[str | int, ...]


def strategic_merge(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `base` merged with `patch`; neither is changed. A null in the patch removes the field.

    The patch has passed `check`.
    """
    if DIRECTIVE in patch:
        whole = {} if patch[DIRECTIVE] == "delete" else patch
        return strategic_merge({}, {name: value for name, value in whole.items() if name != DIRECTIVE})
    kept = patch.get(RETAIN)
    merged = dict(base) if kept is None else {name: base[name] for name in base if name in kept}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif name != RETAIN:
            merged[name] = _merge(name, merged.get(name), value)
    return merged


def _merge(name: str, old: Any, new: Any) -> Any:
    if isinstance(new, Mapping):
        return strategic_merge(old if isinstance(old, Mapping) else {}, new)
    if not isinstance(new, list):
        return new
    before = old if isinstance(old, list) else []
    if name in SETS:
        return list(dict.fromkeys([*before, *new]))
    if (key := MERGE_KEYS.get(name)) is not None:
        return _merge_entries(before, new, key)
    return [strategic_merge({}, entry) if isinstance(entry, Mapping) else entry for entry in new]


def _merge_entries(old: Sequence[Any], new: Sequence[Any], key: str) -> list[Any]:
    words = [entry.get(DIRECTIVE) for entry in new]
    removed = [entry[key] for entry, word in zip(new, words, strict=True) if word == "delete"]
    entries = {} if "replace" in words else {entry[key]: entry for entry in old if entry[key] not in removed}
    for entry, word in zip(new, words, strict=True):
        if word is None:
            entries[entry[key]] = strategic_merge(entries.get(entry[key], {}), entry)
    return list(entries.values())


def check(patch: Mapping[str, Any]) -> Iterator[tuple[FieldPath, str]]:
    """Yields what `strategic_merge` cannot apply, as `(path in the patch, message)`."""
    if (word := patch.get(DIRECTIVE)) not in (None, "replace", "delete"):
        yield (DIRECTIVE,), f"expected replace or delete, not {word}"
    kept = patch.get(RETAIN, ())
    if not isinstance(kept, list | tuple) or (kept and not patch.keys() - {RETAIN} <= set(map(str, kept))):
        yield (RETAIN,), "expected a list with every field that stands beside it"
    for name, value in patch.items():
        if name in (DIRECTIVE, RETAIN) or name in _MAPS or value is None:
            continue
        if name.startswith("$"):
            yield (name,), f"unknown directive; expected {DIRECTIVE} or {RETAIN}"
            continue
        problems = _check_value(value, MERGE_KEYS.get(name), name in SETS)
        yield from (((name, *path), message) for path, message in problems)


def _check_value(value: Any, key: str | None, is_set: bool) -> Iterator[tuple[FieldPath, str]]:
    if key is not None or is_set:
        if not isinstance(value, list):
            yield (), "expected a list"
            return
    elif isinstance(value, Mapping):
        yield from check(value)
    for index, entry in enumerate(value if isinstance(value, list) else ()):
        if is_set and not isinstance(entry, str):
            yield (index,), "expected a string"
        elif key is not None and not isinstance(entry, Mapping):
            yield (index,), f"expected a mapping with {key}"
        elif isinstance(entry, Mapping) and not (key is not None and entry.get(DIRECTIVE) == "replace"):
            if key is not None and not isinstance(entry.get(key), str | int):
                yield (index,), f"expected a mapping with {key}, by which it is known"
            yield from (((index, *path), message) for path, message in check(entry))
