"""The fields of a pod template, their types, and the values that an API server accepts. With them,
Kubernetes' own fields in a file are checked without a server.

Fields, types and required fields are those of Kubernetes' OpenAPI, in `pod_fields.json`. The tables here have
the rules that OpenAPI lacks. Source: https://github.com/kubernetes/kubernetes, `pkg/apis/core/validation`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path as FilePath
from typing import Any, Final

from launcher import object_names
from launcher.config.yaml_parser import FieldPath
from launcher.lists_and_counts import did_you_mean, listed, nearest
from launcher.pod_spec.strategic_merge import DIRECTIVE, RETAIN

Problem = tuple[FieldPath, str]
Types = Mapping[str, Mapping[str, str]]

FILE: Final = FilePath(__file__).with_suffix(".json")
"""For each type, its fields and their types; `!` marks a required field. A test writes the file
(`--renew`).
"""

EFFECTIVELY_REQUIRED: Final = frozenset(
    ["ConfigMapEnvSource", "ConfigMapKeySelector", "ConfigMapProjection", "ConfigMapVolumeSource",
     "LocalObjectReference", "SecretEnvSource", "SecretKeySelector", "SecretProjection"]
)  # fmt: skip
"""Types whose `name` OpenAPI calls "effectively required": without it they refer to nothing, and no pod
starts.
"""

MISSING: Final = "missing: it must be given"

_SOURCES: Final = ("configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef")
_PROJECTIONS: Final = (
    "clusterTrustBundle", "configMap", "downwardAPI", "podCertificate", "secret", "serviceAccountToken",
)  # fmt: skip
ONE_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "EnvVarSource": _SOURCES,
    "EnvFromSource": ("configMapRef", "secretRef"),
    "LifecycleHandler": ("exec", "httpGet", "sleep", "tcpSocket"),
    "Probe": ("exec", "grpc", "httpGet", "tcpSocket"),
    "VolumeProjection": _PROJECTIONS,
}
"""Exactly one of these fields must be set."""

_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
ENUMS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("Container", "imagePullPolicy"): ("Always", "IfNotPresent", "Never"),
    ("Container", "terminationMessagePolicy"): ("File", "FallbackToLogsOnError"),
    ("ContainerPort", "protocol"): ("TCP", "UDP", "SCTP"),
    ("HTTPGetAction", "scheme"): ("HTTP", "HTTPS"),
    ("HostPathVolumeSource", "type"): (
        "", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice",
    ),
    ("LabelSelectorRequirement", "operator"): _OPERATORS,
    ("NodeSelectorRequirement", "operator"): (*_OPERATORS, "Gt", "Lt"),
    ("PodSpec", "dnsPolicy"): ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"),
    ("PodSpec", "preemptionPolicy"): ("PreemptLowerPriority", "Never"),
    ("PodSecurityContext", "fsGroupChangePolicy"): ("OnRootMismatch", "Always"),
    ("SeccompProfile", "type"): ("Localhost", "RuntimeDefault", "Unconfined"),
    ("Toleration", "effect"): ("", "NoSchedule", "PreferNoSchedule", "NoExecute"),
    ("Toleration", "operator"): ("", "Exists", "Equal", "Lt", "Gt"),
    ("TopologySpreadConstraint", "whenUnsatisfiable"): ("DoNotSchedule", "ScheduleAnyway"),
    ("VolumeMount", "mountPropagation"): ("None", "HostToContainer", "Bidirectional"),
}  # fmt: skip

_FIELD_PATH: Final = re.compile(
    r"metadata\.(name|namespace|uid|labels|annotations)|metadata\.(labels|annotations)\['[^']+'\]"
    r"|spec\.(nodeName|serviceAccountName)|status\.(hostIPs?|podIPs?)"
)


def _inside(path: str) -> bool:
    return not path.startswith("/") and ".." not in path.split("/")


_PORT: Final = (lambda value: 1 <= value <= 65_535, "a port from 1 to 65535")
_NOT_NEGATIVE: Final = (lambda value: value >= 0, "at least 0")
_POSITIVE: Final = (lambda value: value >= 1, "at least 1")
_INSIDE: Final = (_inside, "a path below the volume: without '..', not beginning with '/'")
_NAMED: Final = (
    object_names.is_dns_subdomain,
    "lower-case letters, digits, '-' and '.', at most 253 characters",
)
_LABEL: Final = (object_names.is_dns_1123, "lower-case letters, digits and '-', at most 63 characters")
_ABSOLUTE: Final = (lambda value: ":" not in value, "a path without ':'")
_MODE: Final = (lambda value: 0 <= value <= 0o777, "a mode from 0 to 0777")
FORMS: Final[Mapping[tuple[str, str], tuple[Callable[[Any], bool], str]]] = {
    ("ConfigMapVolumeSource", "defaultMode"): _MODE,
    ("Container", "name"): _LABEL,
    ("ContainerPort", "containerPort"): _PORT,
    ("ContainerPort", "hostPort"): _PORT,
    ("DownwardAPIVolumeFile", "path"): _INSIDE,
    ("DownwardAPIVolumeSource", "defaultMode"): _MODE,
    ("EnvVar", "name"): (
        object_names.is_env_name, "printable ASCII characters without '=', as in BATCH_SIZE",
    ),
    ("GRPCAction", "port"): _PORT,
    ("HostPathVolumeSource", "path"): (
        lambda value: ".." not in value.split("/"), "a path without '..'",
    ),
    ("KeyToPath", "mode"): _MODE,
    ("KeyToPath", "path"): _INSIDE,
    ("ObjectFieldSelector", "fieldPath"): (
        lambda value: _FIELD_PATH.fullmatch(value) is not None,
        "a field that a pod knows of itself, such as metadata.name or status.podIP",
    ),
    ("PersistentVolumeClaimVolumeSource", "claimName"): _NAMED,
    ("PodSpec", "activeDeadlineSeconds"): _POSITIVE,
    ("PodSpec", "terminationGracePeriodSeconds"): _NOT_NEGATIVE,
    ("PreferredSchedulingTerm", "weight"): (lambda value: 1 <= value <= 100, "a weight from 1 to 100"),
    ("Probe", "failureThreshold"): _POSITIVE,
    ("Probe", "initialDelaySeconds"): _NOT_NEGATIVE,
    ("Probe", "periodSeconds"): _POSITIVE,
    ("Probe", "successThreshold"): _POSITIVE,
    ("Probe", "timeoutSeconds"): _POSITIVE,
    ("ProjectedVolumeSource", "defaultMode"): _MODE,
    ("SecretVolumeSource", "defaultMode"): _MODE,
    ("SecretVolumeSource", "secretName"): _NAMED,
    ("ServiceAccountTokenProjection", "path"): _INSIDE,
    ("TopologySpreadConstraint", "maxSkew"): _POSITIVE,
    ("Volume", "name"): _LABEL,
    ("VolumeMount", "mountPath"): _ABSOLUTE,
    ("VolumeMount", "subPath"): _INSIDE,
    ("VolumeMount", "subPathExpr"): _INSIDE,
    ("WeightedPodAffinityTerm", "weight"): (lambda value: 1 <= value <= 100, "a weight from 1 to 100"),
    **{(kind, "name"): _NAMED for kind in EFFECTIVELY_REQUIRED},
}  # fmt: skip
"""By type and field: the check of a value, and the text that describes it."""

MAY_BE_EMPTY: Final = frozenset({("HTTPHeader", "value"), ("Sysctl", "value")})
"""Required texts that may be ""."""

_CONTAINER: Final = re.compile(r"(List|Dict)\[(?:str, )?(.*)\]")
_QUANTITY: Final = "expected a quantity, such as 2, 500m or 4Gi"
_INTEGERS: Final = {"int": 1 << 63, "int32": 1 << 31, "int64": 1 << 63}


@cache
def types() -> Types:
    """Returns the types of Kubernetes."""
    kubernetes_types: dict[str, dict[str, str]] = json.loads(FILE.read_text(encoding="utf-8"))
    return kubernetes_types


class Check:
    """Checks a value by the fields of `types()` and `more`.

    A `patch` is merged later: it may lack required fields, and may have directives. A null counts as a field
    that is left out.
    """

    def __init__(self, more: Types | None = None, *, patch: bool = False) -> None:
        self._types = {**types(), **(more or {})}
        self._patch = patch

    def problems(self, value: Any, kind: str, here: FieldPath) -> Iterator[Problem]:
        """Yields the problems of the value, whose path is `here`."""
        if value is None or kind == "object":
            return
        if (match := _CONTAINER.fullmatch(kind)) is not None:
            yield from self._entries(value, match[1], match[2], here)
        elif kind in self._types:
            if isinstance(value, Mapping):
                yield from self._mapping(value, kind, here)
            else:
                yield here, "expected a mapping"
        elif (expected := _expected(value, kind)) is not None:
            yield here, expected

    def of_field(self, value: Any, kind: str, name: str, here: FieldPath) -> Iterator[Problem]:
        """Yields the problems of the value of a known field; `here` is the path of what has the field."""
        field = self._types[kind][name]
        problems = list(self.problems(value, field.rstrip("!"), (*here, name)))
        if not problems and value is not None and (message := _form(value, kind, name, field)):
            problems = [((*here, name), message)]
        yield from problems

    def _mapping(self, value: Mapping[str, Any], kind: str, here: FieldPath) -> Iterator[Problem]:
        known = self._types[kind]
        for name, inner in value.items():
            if self._patch and name in (DIRECTIVE, RETAIN):
                continue
            if name not in known:
                yield (*here, name), self.unknown(name, kind)
                continue
            yield from self.of_field(inner, kind, name, here)
        # `$patch: delete` needs only the key.
        if value.get(DIRECTIVE) != "delete" or not self._patch:
            yield from self._completeness(value, kind, here)

    def _completeness(self, value: Mapping[str, Any], kind: str, here: FieldPath) -> Iterator[Problem]:
        given = [name for name in value if value[name] is not None]
        choices = ONE_OF.get(kind, ())
        if kind == "Volume":
            choices = tuple(name for name in self._types[kind] if name != "name")
        chosen = [name for name in given if name in choices]
        if len(chosen) > 1 and not (self._patch and kind == "Volume"):
            yield here, f"expected one of {listed(chosen, last='or')}, not both"
        if self._patch:
            return
        misspelt = [name for name in value if name not in self._types[kind]]
        # A volume without a source is an emptyDir.
        if not chosen and not misspelt and choices and kind != "Volume":
            yield here, f"expected {listed(choices, last='or')}: one of them must be given"
        for name, field in self._types[kind].items():
            required = field.endswith("!") or (kind in EFFECTIVELY_REQUIRED and name == "name")
            if required and value.get(name) is None and not nearest(name, misspelt):
                yield (*here, name), MISSING

    def _entries(self, value: Any, container: str, kind: str, here: FieldPath) -> Iterator[Problem]:
        entries: list[tuple[str | int, Any]]
        if container == "List":
            if not isinstance(value, list | tuple):
                yield here, "expected a list"
                return
            entries = list(enumerate(value))
        else:
            if not isinstance(value, Mapping):
                yield here, "expected a mapping"
                return
            entries = [
                (name, inner) for name, inner in value.items() if not (self._patch and name == DIRECTIVE)
            ]
        for name, inner in entries:
            if inner is None and container == "List":
                yield (*here, name), "expected an entry, not nothing"
            yield from self.problems(inner, kind, (*here, name))

    def unknown(self, name: str, kind: str) -> str:
        """Returns the message about a field that the type does not have."""
        known = list(self._types[kind])
        meant = did_you_mean(name, known) or f"; expected one of {', '.join(sorted(known))}"
        return f"unknown field{meant}"


def _expected(value: Any, kind: str) -> str | None:
    """Returns what is wrong with the type of a single value, or None."""
    shown = _shown(value)
    if isinstance(value, Mapping | list | tuple):
        return f"expected a single value, not a {'mapping' if isinstance(value, Mapping) else 'list'}"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "bool" and not isinstance(value, bool):
        return f"expected a boolean, true or false, not {shown}"
    if kind in _INTEGERS:
        if not number or isinstance(value, float):
            return f"expected an integer, not {shown}"
        limit = _INTEGERS[kind]
        return None if -limit <= value < limit else f"expected at most {limit - 1}, not {shown}"
    if kind == "quantity":
        fits = number or isinstance(value, str)
        return None if fits and object_names.is_quantity(str(value)) else f"{_QUANTITY}, not {shown}"
    if kind == "intstr" and not isinstance(value, str) and (not number or isinstance(value, float)):
        return f"expected an integer or a string, not {shown}"
    if kind == "str" and not isinstance(value, str):
        return f'expected a string, not {shown}: put it in quotes, "{shown}"'
    return None


def _form(value: Any, kind: str, name: str, field: str) -> str | None:
    """Returns what is wrong with a value of the right type, or None."""
    if value == "" and field.startswith("str") and (kind, name) not in MAY_BE_EMPTY:
        if field.endswith("!") or (kind in EFFECTIVELY_REQUIRED and name == "name"):
            return "expected a string, not nothing"
        if (kind, name) not in ENUMS:
            return None
    if (choices := ENUMS.get((kind, name))) and value not in choices:
        named = [choice for choice in choices if choice]
        return f"expected {listed(named, last='or')}, not {_shown(value)}{did_you_mean(str(value), named)}"
    fits, expected = FORMS.get((kind, name), (None, ""))
    return f"expected {expected}, not {_shown(value)}" if fits is not None and not fits(value) else None


def _shown(value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=False, default=str)
    shown = shown if shown.isprintable() else json.dumps(value, default=str)
    return shown if len(shown) <= 60 else shown[:57] + "..."
