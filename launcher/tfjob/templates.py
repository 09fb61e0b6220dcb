"""Converts a TFJob's pod template to the fields of a role. What the role has no field for stays in its
podTemplate, unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from launcher.config.role_fields import Holder, rules
from launcher.config.spec import RoleTemplate
from launcher.config.yaml_parser import FieldPath
from launcher.object_names import CONTAINER
from launcher.pod_spec.strategic_merge import MERGE_KEYS
from worker.contract.environment import PORT

PORT_NAME: Final = "tfjob-port"

_REFERENCE: Final = re.compile(r"\$[$(]")
"""References that Kubernetes replaces in a command, an argument or a variable. A role takes its own
literally.
"""

Object = dict[str, Any]


@dataclass
class RoleFields:
    """A role's fields, and their origins: path in the role -> path in the pod template."""

    fields: Object = field(default_factory=dict)
    origins: dict[FieldPath, FieldPath] = field(default_factory=dict)


def lift(template: Mapping[str, Any], labels: Mapping[str, str]) -> RoleFields:
    """Returns the fields for the template, which has a container `tensorflow`, and no nulls. `labels` are
    added to the labels of the pods.
    """
    role_fields = RoleFields()
    spec: Object = dict(template["spec"])
    # A Job's template allows only Never; the role's restartPolicy has the meaning of the TFJob's.
    spec.pop("restartPolicy", None)
    containers: list[Object] = spec.pop("containers")
    index = next(i for i, each in enumerate(containers) if each.get("name") == CONTAINER)
    container = dict(containers[index])
    at: FieldPath = ("spec", "containers", index)
    for name in _names("container"):
        if name in container and _is_plain(name, container[name]):
            role_fields.fields[name] = container.pop(name)
            role_fields.origins[name,] = (*at, name)
    _lift_port(role_fields, container, at)
    for name in _names("pod"):
        if name in spec:
            role_fields.fields[name] = spec.pop(name)
            role_fields.origins[name,] = ("spec", name)
    _keep_identity(role_fields, spec)
    _keep_security(spec, container)
    others = [(i, each) for i, each in enumerate(containers) if i != index]
    kept = [(index, container)] * (len(container) > 1) + others
    if kept:
        spec["containers"] = [each for _, each in kept]
    metadata = _metadata(template.get("metadata") or {}, labels)
    role_fields.fields["podTemplate"] = {"metadata": metadata, **({"spec": spec} if spec else {})}
    role_fields.origins["podTemplate",] = ()
    for position, (original, _) in enumerate(kept):
        here: FieldPath = ("podTemplate", "spec", "containers", position)
        role_fields.origins[here] = ("spec", "containers", original)
    return role_fields


def given_twice(template: Mapping[str, Any], here: FieldPath) -> Iterator[tuple[FieldPath, str]]:
    """Yields entries of a list that Kubernetes' strategic merge, which puts them into a Job, counts as one
    entry.
    """
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


def _names(at: Holder) -> list[str]:
    """The fields that a pod or a container and a role have under the same name."""
    return [field.alias for field in rules(RoleTemplate, at)]


def _is_plain(name: str, value: Any) -> bool:
    """Returns whether the role's field of this name has the same meaning."""
    if name in ("command", "args"):
        return not any(_REFERENCE.search(word) for word in value)
    if name == "env":
        return not any(_REFERENCE.search(variable.get("value") or "") for variable in value)
    # Roles have no field for devices by claims.
    return name != "resources" or value.keys() <= {"requests", "limits"}


def _lift_port(role_fields: RoleFields, container: Object, at: FieldPath) -> None:
    ports: list[Object] = container.get("ports") or []
    for index, port in enumerate(ports):
        if port.get("name") != PORT_NAME:
            continue
        if port.get("containerPort") != PORT:
            role_fields.fields["port"] = port.get("containerPort")
            role_fields.origins["port",] = (*at, "ports", index, "containerPort")
        if port.keys() <= {"name", "containerPort", "protocol"} and port.get("protocol") in (None, "TCP"):
            # The role has the same port.
            left = [each for each in ports if each is not port]
            container.update(ports=left)
        break
    if not container.get("ports"):
        container.pop("ports", None)


def _keep_identity(role_fields: RoleFields, spec: Object) -> None:
    """Keeps the token of a service account that the template names, since the pod needs it to use the
    account.
    """
    if "serviceAccountName" in role_fields.fields or "serviceAccount" in spec:
        spec.setdefault("automountServiceAccountToken", True)


def _keep_security(spec: Object, container: Object) -> None:
    """Keeps a securityContext of the template, of the pod or the container, in place of the launcher's."""
    if "securityContext" not in spec and "securityContext" not in container:
        return
    for holder in (spec, container):
        given = holder.get("securityContext")
        holder["securityContext"] = {"$patch": "replace", **given} if given else None


def _metadata(given: Mapping[str, Any], labels: Mapping[str, str]) -> Object:
    kept = {name: given[name] for name in ("annotations", "finalizers") if given.get(name)}
    return {"labels": {**(given.get("labels") or {}), **labels}, **kept}
