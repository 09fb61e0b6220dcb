"""The format of a run's files, and a check of it.

A file may be empty, cut off by a full disk or a power failure, changed by hand, or of another version. Fields
of a later version are ignored.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, Union

from launcher.object_names import is_dns_1035, is_dns_1123
from launcher.status import ATTEMPT_ANNOTATION, INDEX_KEY, seconds


@dataclass(frozen=True)
class Kind:
    """One value. `expected` says in a message what it is to be."""

    expected: str
    test: Callable[[Any], bool]


Shape: TypeAlias = Union[Kind, "list[Shape]", "tuple[Shape]", "Mapping[str, Shape]"]
"""`[shape]` is a list of values of this shape, `(shape,)` one that is not empty, and a mapping has these
fields. A field whose name ends in `?` may be missing or null; ANY stands for all fields that are not named.
"""

ANY: Final = "*"
_MOST_DIGITS: Final = 9
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ADDRESS = re.compile(r"127\.0\.0\.1:([0-9]{1,5})")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_LATEST: Final = 1e11
"""Seconds since the epoch, in the year 5138: beyond it are numbers that no calendar takes."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _is_time(value: Any) -> bool:
    try:
        return isinstance(value, str) and seconds(value) is not None
    except (ValueError, OverflowError):
        return False


def _is_file_name(value: Any) -> bool:
    return isinstance(value, str) and value not in ("", ".", "..") and not re.search("[/\0]", value)


def _is_digits(value: Any) -> bool:
    return isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS


def _is_address(value: Any) -> bool:
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    return match is not None and 0 < int(match.group(1)) < 2**16


text = Kind("a text", lambda value: isinstance(value, str))
flag = Kind("true or false", lambda value: isinstance(value, bool))
count = Kind("an integer from 0", lambda value: type(value) is int and 0 <= value < 2**63)
number = Kind("a number from 0", _is_number)
moment = Kind("seconds since the epoch", lambda value: _is_number(value) and value < _LATEST)
time_text = Kind("a time, such as 2026-01-31T12:00:00Z", _is_time)
uid = Kind("an object's uid", lambda value: isinstance(value, str) and _UID.fullmatch(value) is not None)
run_name = Kind("a run's name", lambda value: isinstance(value, str) and is_dns_1035(value))
namespace_name = Kind("a namespace's name", lambda value: isinstance(value, str) and is_dns_1123(value))
file_name = Kind("the name of a file", _is_file_name)
digits = Kind("an integer, as text", _is_digits)
local_address = Kind("an address, such as 127.0.0.1:20000", _is_address)
pod_phase = Kind(
    "a pod's phase",
    lambda value: value in ("Pending", "Running", "Succeeded", "Failed", "Unknown"),
)
anything = Kind("anything", lambda _: True)

_TEXTS: Final[Mapping[str, Any]] = {ANY: text}
_CONDITION: Final[Mapping[str, Any]] = {"type": text, "status": text, "reason?": text, "message?": text}
_JOB: Final[Mapping[str, Any]] = {
    "metadata": {
        "name": file_name,
        "namespace?": namespace_name,
        "generation?": count,
        "labels?": _TEXTS,
        "annotations?": _TEXTS,
    },
    "spec": {"completions?": count, "suspend?": flag},
    "status?": {
        **dict.fromkeys(("active?", "ready?", "succeeded?", "failed?"), count),
        **dict.fromkeys(("startTime?", "completionTime?"), time_text),
        "conditions?": [{**_CONDITION, "lastTransitionTime?": time_text}],
    },
}
_SPAN: Final[Mapping[str, Any]] = {
    "startedAt?": time_text,
    "finishedAt?": time_text,
    "reason?": text,
    "message?": text,
}
_POD: Final[Mapping[str, Any]] = {
    "metadata": {
        "name": text,
        "uid": uid,
        "labels": {INDEX_KEY: digits, ANY: text},
        "annotations": {ATTEMPT_ANNOTATION: digits, ANY: text},
        "creationTimestamp?": time_text,
        "deletionTimestamp?": time_text,
    },
    "spec": {"hostname": file_name, "nodeName?": text},
    "status": {
        "phase": pod_phase,
        "reason?": text,
        "message?": text,
        "startTime?": time_text,
        "containerStatuses?": [
            {
                "name": text,
                "state?": {
                    "waiting?": _SPAN,
                    "running?": _SPAN,
                    "terminated?": {**_SPAN, "exitCode": count},
                },
            }
        ],
    },
}

EXPIRES: Final[Shape] = moment
STATE: Final[Shape] = {"ended": flag, "supervisor?": count, "jobs": (_JOB,), "pods": [_POD]}

_ITEMS: Final[Mapping[str, Any]] = {
    "name?": text,
    "items?": [{"key?": text, "path?": text}],
    "optional?": flag,
}
_FILES: Final[Mapping[str, Any]] = {f"{kind}?": _ITEMS for kind in ("configMap", "secret", "downwardAPI")}
_MOUNT: Final[Mapping[str, Any]] = {"name": text, "mountPath": text, "subPath?": text, "subPathExpr?": text}
_TEMPLATE: Final[Mapping[str, Any]] = {
    "metadata?": {"labels?": _TEXTS, "annotations?": _TEXTS},
    "spec": {
        "terminationGracePeriodSeconds?": number,
        "volumes?": [
            {
                "name": file_name,
                **_FILES,
                "projected?": {"sources?": [{**_FILES, "serviceAccountToken?": {"path": text}}]},
                "hostPath?": {"path": text, "type?": text},
                "persistentVolumeClaim?": {"claimName": text},
            }
        ],
        "containers": ({"name": text, "volumeMounts?": [_MOUNT]},),
    },
}
_OBJECTS: Final[Mapping[str, Shape]] = {
    "Job": {
        "metadata": {**_JOB["metadata"], "name": file_name},
        "spec": {**_JOB["spec"], "template": _TEMPLATE},
    },
    "ConfigMap": {"data?": _TEXTS, "binaryData?": _TEXTS},
}
_OBJECT: Final[Mapping[str, Any]] = {
    "kind": text,
    "metadata": {"name": text, "labels?": _TEXTS, "annotations?": _TEXTS},
}
SUBMISSION: Final[Shape] = {
    "run": run_name,
    "namespace": namespace_name,
    "uid": uid,
    "submitted": moment,
    "objects": [_OBJECT],
    "addresses": {ANY: local_address},
    "settings": {ANY: number},
}


class UnreadableError(Exception):
    """A file of a run is not what it should be. The text says why, without the file's name."""


def read(path: Path, shape: Shape) -> Any:
    """The JSON in a file; None when there is no file. Raises UnreadableError."""
    if path.exists() and not path.is_file():
        raise UnreadableError("is no file")  # of a pipe nobody would see the end
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UnreadableError(error.strerror or str(error)) from error
    if not content.strip(b"\0 \t\r\n"):
        raise UnreadableError("is empty")
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UnreadableError("is no JSON, or only the beginning of it") from error
    if wrong := mismatch(value, shape):
        raise UnreadableError(f"does not hold what this version expects: {wrong}")
    return value


def mismatch_of_submission(document: Mapping[str, Any]) -> str:
    """As `mismatch`, for the objects of a submission, each by its kind."""
    problem = mismatch(document, SUBMISSION)
    for place, item in enumerate(() if problem else document["objects"]):
        problem = problem or mismatch(item, _OBJECTS.get(item["kind"], anything), f"objects[{place}]")
    if not problem and not any(item["kind"] == "Job" for item in document["objects"]):
        return "objects: expected a Job"
    return problem


def mismatch(value: Any, shape: Shape, where: str = "") -> str:
    """What is wrong with a value, as `pods[0].metadata.uid: expected an object's uid`; "" if nothing is."""
    if isinstance(shape, Kind):
        if not shape.test(value):
            return f"{where or 'the whole'}: expected {shape.expected}"
        if isinstance(value, str) and _SURROGATE.search(value):
            return f"{where}: half of a surrogate pair, which is no text"
        return ""
    if isinstance(shape, list | tuple):
        if not isinstance(value, list) or (isinstance(shape, tuple) and not value):
            return (
                f"{where or 'the whole'}: expected a list{'' if isinstance(shape, list) else ', not empty'}"
            )
        pairs = ((item, shape[0], f"{where}[{place}]") for place, item in enumerate(value))
        return _first(pairs)
    if not isinstance(value, dict):
        return f"{where or 'the whole'}: expected fields"
    if any(_SURROGATE.search(name) for name in value):
        return f"{where or 'the whole'}: half of a surrogate pair, which is no text"
    return _first(_fields(value, shape, f"{where}." if where else ""))


def _fields(value: Mapping[str, Any], shape: Mapping[str, Shape], before: str) -> Sequence[Any]:
    pairs = []
    for name, inner in shape.items():
        optional, bare = name.endswith("?"), name.rstrip("?")
        if name == ANY:
            pairs += [(value[other], inner, before + other) for other in value if other not in shape]
        elif not (optional and value.get(bare) is None):
            pairs.append((value.get(bare), inner, before + bare))
    return pairs


def _first(pairs: Any) -> str:
    return next((problem for pair in pairs if (problem := mismatch(*pair))), "")
