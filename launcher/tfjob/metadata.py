"""Converts a TFJob's metadata to the run's: its name, and the fields to leave out because a server or kubectl
wrote them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from launcher.object_names import LABEL_LENGTH, QUEUE_LABEL

Object = dict[str, Any]

_KEPT: Final = ("name", "namespace", "labels", "annotations")
_SERVERS_OWN: Final = (
    "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields",
    "ownerReferences", "resourceVersion", "selfLink", "uid",
)  # fmt: skip
"""Fields that a server adds, and that `kubectl get -o yaml` prints."""
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

# https://github.com/kubernetes/apiserver/blob/master/pkg/storage/names/generate.go and
# https://github.com/kubernetes/apimachinery/blob/master/pkg/util/rand/rand.go: no vowels, and no characters
# that look alike.
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_RANDOM_LENGTH: Final = 5


@dataclass
class Metadata:
    """The result. `fields` are the run's. `dropped` has the names of what is left out; `problems` are field
    and message.
    """

    fields: Object = field(default_factory=dict)
    generated: str = ""
    """The name, where it was made from generateName."""
    dropped: list[str] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)


def of_run(given: Mapping[str, Any]) -> Metadata:
    """Returns the run's metadata. Where only generateName is given, each call gives another name."""
    metadata = Metadata()
    for name, value in given.items():
        if value in (None, {}, [], ""):
            continue
        if name in _KEPT:
            metadata.fields[name] = value
        elif name in _SERVERS_OWN:
            metadata.dropped.append(f"metadata.{name}")
        elif name != "generateName":
            metadata.problems.append((name, "not supported: remove it"))
    if "name" in metadata.fields and given.get("generateName"):
        metadata.dropped.append("metadata.generateName")
    elif given.get("generateName"):
        metadata.generated = generated(given["generateName"])
        metadata.fields = {"name": metadata.generated, **metadata.fields}
    # With the label, Kueue would admit each of the run's Jobs by itself.
    for name, key in (("annotations", _APPLIED), ("labels", QUEUE_LABEL)):
        if key in metadata.fields.get(name, {}):
            kept = {other: value for other, value in metadata.fields.pop(name).items() if other != key}
            metadata.fields |= {name: kept} if kept else {}
            metadata.dropped += [f"metadata.{name}[{key!r}]"] if key == _APPLIED else []
    return metadata


def generated(prefix: str) -> str:
    """Returns a name that an API server would make from a generateName."""
    characters = (secrets.choice(_ALPHABET) for _ in range(_RANDOM_LENGTH))
    return prefix[: LABEL_LENGTH - _RANDOM_LENGTH] + "".join(characters)
