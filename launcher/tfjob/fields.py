"""The fields of a TFJob and of the pod templates in it, and their types: what its CRD says of them."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path as FilePath
from typing import Any, Final

from launcher.yamlfile import Path

Problem = tuple[Path, str]

TFJOB: Final[Mapping[str, Mapping[str, str]]] = {
    "TFJob": {
        "apiVersion": "str",
        "kind": "str",
        "metadata": "V1ObjectMeta",
        "spec": "TFJobSpec",
        "status": "object",
    },
    "TFJobSpec": {
        "runPolicy": "RunPolicy",
        "successPolicy": "str",
        "tfReplicaSpecs": "Dict[str, ReplicaSpec]",
        "enableDynamicWorker": "bool",
    },
    "ReplicaSpec": {"replicas": "int", "restartPolicy": "str", "template": "V1PodTemplateSpec"},
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
        "minResources": "Dict[str, str]",
        "priorityClass": "str",
        "scheduleTimeoutSeconds": "int",
    },
}
"""By type, each field's own type, in the words of the Kubernetes client for Python."""

OLD_POLICY: Final = ("activeDeadlineSeconds", "backoffLimit", "cleanPodPolicy", "ttlSecondsAfterFinished")
"""Of runPolicy, what stood beside tfReplicaSpecs before there was one."""

POD_FIELDS: Final = FilePath(__file__).with_name("podfields.json")
"""The same for a pod template: the client itself takes a second to import. A test writes it (`--renew`)."""

_QUANTITIES: Final = ("limits", "requests", "minResources", "sizeLimit", "divisor", "overhead", "capacity")
"""Text by their type, for which a number will do."""

_CONTAINER: Final = re.compile(r"(List|Dict)\[(?:str, )?(.*)\]")


@cache
def _types() -> Mapping[str, Mapping[str, str]]:
    pods: dict[str, dict[str, str]] = json.loads(POD_FIELDS.read_text(encoding="utf-8"))
    old = {name: TFJOB["RunPolicy"][name] for name in OLD_POLICY}
    return {**pods, **TFJOB, "TFJobSpec": {**TFJOB["TFJobSpec"], **old}}


def problems(value: Mapping[str, Any]) -> list[Problem]:
    """Every field of a TFJob that is not known, or is not what it must be. A null stands for a field that is
    left out.
    """
    return list(_check(value, "TFJob", ()))


def without(value: Any, wrong: list[Problem]) -> Any:
    """A copy of the value that lacks these fields; a list with a wrong entry goes whole, so that no other
    entry changes its place.
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
    """A copy without the fields that are null, which are as good as left out."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _has(value: Any, part: str | int) -> bool:
    return part in value if isinstance(value, dict) else isinstance(value, list) and isinstance(part, int)


def _check(value: Any, kind: str, here: Path) -> Iterator[Problem]:
    if value is None or kind == "object":
        return
    if (match := _CONTAINER.fullmatch(kind)) is not None:
        yield from _check_all(value, match[1], match[2], here)
    elif kind in _types():
        if not isinstance(value, Mapping):
            yield here, "expected a mapping"
            return
        known = _types()[kind]
        for name, inner in value.items():
            if name in known:
                yield from _check(inner, known[name], (*here, name))
            else:
                yield (*here, name), _unknown(name, kind)
    elif (expected := _expected(value, kind, here)) is not None:
        yield here, expected


def _check_all(value: Any, container: str, kind: str, here: Path) -> Iterator[Problem]:
    if container == "List":
        if not isinstance(value, list):
            yield here, "expected a list"
            return
        entries: list[tuple[str | int, Any]] = list(enumerate(value))
    else:
        if not isinstance(value, Mapping):
            yield here, "expected a mapping"
            return
        entries = list(value.items())
    for name, inner in entries:
        if inner is None and container == "List":
            yield (*here, name), "expected an entry, not nothing"
        yield from _check(inner, kind, (*here, name))


def _expected(value: Any, kind: str, here: Path) -> str | None:
    """What is wrong with a single value, if anything."""
    shown = json.dumps(value, ensure_ascii=False)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    if isinstance(value, dict | list):
        return f"expected a single value, not a {'mapping' if isinstance(value, dict) else 'list'}"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "bool" and not isinstance(value, bool):
        return f"expected true or false, not {shown}"
    if kind == "int" and (not number or isinstance(value, float)):
        return f"expected a whole number, not {shown}"
    if kind == "float" and not number:
        return f"expected a number, not {shown}"
    if kind == "str" and not isinstance(value, str):
        if number and any(part in _QUANTITIES for part in here):
            return None
        return f'expected text, not {shown}: put it in quotes, "{shown}"'
    return None


def _unknown(name: str, kind: str) -> str:
    if kind == "TFJobSpec" and (name in TFJOB["RunPolicy"] or name == "schedulingPolicy"):
        return f"unknown field; it belongs in spec.runPolicy.{name}"
    known = list(_types()[kind])
    near = difflib.get_close_matches(name, known, 1)
    if near:
        return f"unknown field; did you mean {near[0]}?"
    return f"unknown field; expected one of {', '.join(sorted(known))}"
