"""A container's environment, as the kubelet computes it.

Source: kubernetes/kubernetes `pkg/kubelet/kubelet_pods.go` (makeEnvironmentVariables) and
`third_party/forked/golang/expansion/expand.go`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final

from launcher.quantities import quantity
from worker.contract.environment import BUCKET_KEYS, GIT_KEYS

ConfigMaps = Mapping[str, Mapping[str, str]]
"""The run's own ConfigMaps: name -> key -> value."""

NODE: Final = "localhost"
"""The name of the one node."""

ADDRESS: Final = "127.0.0.1"
"""Every pod's address."""


class MissingError(Exception):
    """A variable comes from something that does not exist on this machine. The text says from what."""

    def __init__(self, what: str, advice: str = "give the value itself, or mark it optional") -> None:
        super().__init__(what)
        self.advice = advice


_CREDENTIALS: Final = (
    "export it in this shell (a profile is not read: eval "
    '"$(aws configure export-credentials --format env)" exports one)'
)

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replaces `$(NAME)`. `$$` stands for one `$`; an undefined name is left as it is."""

    def replace(match: re.Match[str]) -> str:
        name = match.group(1)
        return "$" if name is None else variables.get(name, match.group())

    return _REFERENCE.sub(replace, text)


def environment(
    container: Mapping[str, Any], pod: Mapping[str, Any], config_maps: ConfigMaps
) -> dict[str, str]:
    """The variables of `container` in `pod`: envFrom first, then env in order, each seeing those before it.

    The credentials for a bucket or git are this process's own, since this machine has no Secrets. Raises
    MissingError for another Secret, or a ConfigMap that is not the run's, unless it is optional.
    """
    variables: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        prefix = source.get("prefix") or ""
        for key, value in _all_of(source, config_maps).items():
            variables[prefix + key] = value
    for entry in container.get("env") or ():
        given = _value(entry, variables, container, pod, config_maps)
        if given is not None:
            variables[entry["name"]] = given
    return variables


def _all_of(source: Mapping[str, Any], config_maps: ConfigMaps) -> Mapping[str, str]:
    if (reference := source.get("configMapRef")) is not None:
        if reference["name"] in config_maps:
            return config_maps[reference["name"]]
        kind = "ConfigMap"
    else:
        reference = source["secretRef"]
        kind = "Secret"
    if reference.get("optional"):
        return {}
    raise MissingError(f"envFrom: {kind} {reference['name']}")


def _value(
    entry: Mapping[str, Any],
    variables: Mapping[str, str],
    container: Mapping[str, Any],
    pod: Mapping[str, Any],
    config_maps: ConfigMaps,
) -> str | None:
    if entry.get("value"):
        return expand(entry["value"], variables)
    source = entry.get("valueFrom") or {}
    if (reference := source.get("fieldRef")) is not None:
        field_value = field(pod, reference["fieldPath"])
        if field_value is None:
            raise MissingError(f"env {entry['name']}: field {reference['fieldPath']}")
        return field_value
    if (reference := source.get("resourceFieldRef")) is not None:
        return _resource(container, reference)
    if (reference := source.get("configMapKeyRef")) is not None:
        values = config_maps.get(reference["name"], {})
        if reference["key"] in values:
            return values[reference["key"]]
        if reference.get("optional"):
            return None
        raise MissingError(f"env {entry['name']}: key {reference['key']} of ConfigMap {reference['name']}")
    if (reference := source.get("secretKeyRef")) is not None:
        if entry["name"] in (*BUCKET_KEYS, *GIT_KEYS) and entry["name"] in os.environ:
            return os.environ[entry["name"]]
        if reference.get("optional"):
            return None
        what = f"env {entry['name']}: key {reference['key']} of Secret {reference['name']}"
        if entry["name"] in BUCKET_KEYS:
            raise MissingError(what, _CREDENTIALS)
        if entry["name"] in GIT_KEYS:
            raise MissingError(what, "export it in this shell")
        raise MissingError(what)
    if source:
        raise MissingError(f"env {entry['name']}: {next(iter(source))}")
    return ""


_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]")
_FIELDS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "metadata.name": lambda pod: str(pod["metadata"]["name"]),
    "metadata.namespace": lambda pod: str(pod["metadata"]["namespace"]),
    "metadata.uid": lambda pod: str(pod["metadata"]["uid"]),
    "spec.nodeName": lambda _: NODE,
    "spec.serviceAccountName": lambda pod: str(pod["spec"].get("serviceAccountName") or "default"),
    "status.hostIP": lambda _: ADDRESS,
    "status.hostIPs": lambda _: ADDRESS,
    "status.podIP": lambda _: ADDRESS,
    "status.podIPs": lambda _: ADDRESS,
}


def field(pod: Mapping[str, Any], path: str) -> str | None:
    """What a fieldRef to `path` gives; "" for a label or annotation that is not there, as the kubelet
    does; None for a path that is none.
    """
    if (subscript := _SUBSCRIPT.fullmatch(path)) is not None:
        return str((pod["metadata"].get(subscript.group(1)) or {}).get(subscript.group(2), ""))
    read = _FIELDS.get(path)
    return None if read is None else read(pod)


def _resource(container: Mapping[str, Any], reference: Mapping[str, Any]) -> str:
    """A limit or request in units of the divisor, rounded up; without one, what the machine has."""
    kind, _, name = reference["resource"].partition(".")
    given = ((container.get("resources") or {}).get(kind) or {}).get(name)
    divisor = quantity(str(reference.get("divisor") or "0")) or Fraction(1)
    if given is not None:
        amount = quantity(str(given))
    elif kind == "limits" and name == "cpu":
        amount = Fraction(os.cpu_count() or 1)
    elif kind == "limits" and name == "memory":
        amount = Fraction(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    else:
        amount = Fraction(0)
    return str(math.ceil(amount / divisor))
