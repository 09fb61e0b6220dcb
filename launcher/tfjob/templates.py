"""A TFJob's pod template -> the fields of a role: what a role has a field for stands there, the rest in its
podTemplate, as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from launcher.config.yaml_positions import FieldPath
from launcher.naming import CONTAINER
from launcher.pod_spec.strategic_merge import MERGE_KEYS
from worker.contract import PORT

PORT_NAME: Final = "tfjob-port"

_OF_CONTAINER: Final = (
    "image", "imagePullPolicy", "command", "args", "workingDir", "env", "envFrom", "resources",
    "volumeMounts",
)  # fmt: skip
_OF_POD: Final = (
    "imagePullSecrets", "volumes", "nodeSelector", "tolerations", "affinity", "serviceAccountName",
)  # fmt: skip
"""What a pod and a role call the same."""

_REFERENCE: Final = re.compile(r"\$[$(]")
"""What Kubernetes replaces in a command, an argument or a variable. A role's own are taken as they stand."""

Object = dict[str, Any]


@dataclass
class RoleFields:
    """A role's fields, and where each comes from: path in the role -> path in the pod template."""

    fields: Object = field(default_factory=dict)
    origins: dict[FieldPath, FieldPath] = field(default_factory=dict)


def lift(template: Mapping[str, Any], labels: Mapping[str, str]) -> RoleFields:
    """The fields that the template becomes. It has a container `tensorflow`, and no nulls; `labels` are added
    to the pods'.
    """
    found = RoleFields()
    spec: Object = dict(template["spec"])
    # A Job's template has none but Never; a role's restartPolicy says what is meant.
    spec.pop("restartPolicy", None)
    containers: list[Object] = spec.pop("containers")
    index = next(i for i, each in enumerate(containers) if each.get("name") == CONTAINER)
    container = dict(containers[index])
    at: FieldPath = ("spec", "containers", index)
    for name in _OF_CONTAINER:
        if name in container and _is_plain(name, container[name]):
            found.fields[name] = container.pop(name)
            found.origins[name,] = (*at, name)
    _lift_port(found, container, at)
    for name in _OF_POD:
        if name in spec:
            found.fields[name] = spec.pop(name)
            found.origins[name,] = ("spec", name)
    _keep_identity(found, spec)
    _keep_security(spec, container)
    others = [(i, each) for i, each in enumerate(containers) if i != index]
    kept = [(index, container)] * (len(container) > 1) + others
    if kept:
        spec["containers"] = [each for _, each in kept]
    metadata = _metadata(template.get("metadata") or {}, labels)
    found.fields["podTemplate"] = {"metadata": metadata, **({"spec": spec} if spec else {})}
    found.origins["podTemplate",] = ()
    for position, (original, _) in enumerate(kept):
        here: FieldPath = ("podTemplate", "spec", "containers", position)
        found.origins[here] = ("spec", "containers", original)
    return found


def given_twice(template: Mapping[str, Any], here: FieldPath) -> Iterator[tuple[FieldPath, str]]:
    """Entries of a list that Kubernetes' strategic merge, by which it comes into a Job, takes for one."""
    for name, value in template.items():
        if isinstance(value, Mapping):
            yield from given_twice(value, (*here, name))
        elif isinstance(value, list):
            key = MERGE_KEYS.get(name)
            seen: set[Any] = set()
            for index, entry in enumerate(value):
                if isinstance(entry, Mapping):
                    yield from given_twice(entry, (*here, name, index))
                    if key is not None and entry.get(key) in seen:
                        yield (*here, name, index, key), f"{entry[key]} is given twice: keep one"
                    seen.add(entry.get(key or ""))


def _is_plain(name: str, value: Any) -> bool:
    """Whether the role's field of this name means the same."""
    if name in ("command", "args"):
        return not any(_REFERENCE.search(word) for word in value)
    if name == "env":
        return not any(_REFERENCE.search(variable.get("value") or "") for variable in value)
    # Devices by claims have no field.
    return name != "resources" or value.keys() <= {"requests", "limits"}


def _lift_port(found: RoleFields, container: Object, at: FieldPath) -> None:
    ports: list[Object] = container.get("ports") or []
    for index, port in enumerate(ports):
        if port.get("name") != PORT_NAME:
            continue
        if port.get("containerPort") != PORT:
            found.fields["port"] = port.get("containerPort")
            found.origins["port",] = (*at, "ports", index, "containerPort")
        if port.keys() <= {"name", "containerPort", "protocol"} and port.get("protocol") in (None, "TCP"):
            # The role's own, of the same name.
            left = [each for each in ports if each is not port]
            container.update(ports=left)
        break
    if not container.get("ports"):
        container.pop("ports", None)


def _keep_identity(found: RoleFields, spec: Object) -> None:
    """A service account that is named is there to be used, and its token is how."""
    if "serviceAccountName" in found.fields or "serviceAccount" in spec:
        spec.setdefault("automountServiceAccountToken", True)


def _keep_security(spec: Object, container: Object) -> None:
    """A template with a securityContext, the pod's or the container's, has it instead of the launcher's."""
    if "securityContext" not in spec and "securityContext" not in container:
        return
    for holder in (spec, container):
        given = holder.get("securityContext")
        holder["securityContext"] = {"$patch": "replace", **given} if given else None


def _metadata(given: Mapping[str, Any], labels: Mapping[str, str]) -> Object:
    kept = {name: given[name] for name in ("annotations", "finalizers") if given.get(name)}
    return {"labels": {**(given.get("labels") or {}), **labels}, **kept}
