"""What becomes of a field of a role. Each field declares it beside its type, in `launcher.config.spec`; who
merges, checks, prints or converts the fields of pods asks `rules`, and keeps no list of them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

from pydantic import BaseModel

Holder = Literal["pod", "container"]
Beside = Literal["image", "node", "credentials"]


def replaced(default: Any, given: Any) -> Any:
    """The role's value, or the default where it gives none."""
    return default if given in (None, {}, "") else given


def entries(default: Any, given: Any) -> Any:
    """A map, entry by entry."""
    return {**default, **given}


def joined(default: Any, given: Any) -> Any:
    """A list, behind the default's."""
    return (*default, *given)


def by(key: Callable[[Any], object]) -> Callable[[Any, Any], Any]:
    """A list whose entries are known by a key: entry by entry."""

    def merge(default: Any, given: Any) -> Any:
        return tuple({key(entry): entry for entry in (*default, *given)}.values())

    return merge


def maps(default: Any, given: Any) -> Any:
    """A model whose fields are maps: each entry by entry."""
    names = type(default).model_fields
    return default.model_copy(
        update={name: {**getattr(default, name), **getattr(given, name)} for name in names}
    )


def apart(default: Any, given: Any) -> Any:
    """Nothing: both are merged over the pod, one after the other."""
    return {}


def plain(value: Any) -> Any:
    """Kubernetes' form of a value that has Kubernetes' fields."""
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_defaults=True)
    return [plain(entry) for entry in value] if isinstance(value, tuple) else value


@dataclass(frozen=True)
class RoleField:
    """The rules for one field."""

    at: Holder | None = None
    """What has it in Kubernetes, under the same name; a TFJob's pod template has it there too. None: it is
    the launcher's own.
    """
    merge: Callable[[Any, Any], Any] = replaced
    """How a role's value joins the one of `spec.template`: `merge(default, given)`."""
    form: Callable[[Any], Any] = plain
    """Kubernetes' form of its value."""
    ignored_here: bool = False
    """Whether this machine, as a backend, ignores it and says so."""
    of_program: bool = False
    """Whether it says how the user's program is run: the tasks of the data service run none."""
    beside: Beside | None = None
    """Why a pod beside the tasks (TensorBoard's; the one that copies files) takes it from the primary role:
    it has the same image, must be on the same node, or reads the same bucket. None: it does not.
    """


IGNORED_IN_TEMPLATES: Final[Mapping[Holder, tuple[str, ...]]] = {
    "container": (
        "securityContext", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "volumeDevices",
    ),
    "pod": (
        "nodeName", "topologySpreadConstraints", "securityContext", "initContainers", "hostNetwork",
        "dnsConfig", "hostAliases", "schedulingGates", "resourceClaims",
    ),
}  # fmt: skip
"""What only a podTemplate can give, and this machine ignores and says so."""


@dataclass(frozen=True)
class Declared:
    """A field as a model declares it."""

    name: str
    alias: str
    rule: RoleField


def rules(
    model: type[BaseModel], at: Holder | None = None, beside: Container[Beside] | None = None
) -> list[Declared]:
    """The declared fields of a model, in its order. With `at` those that a pod or a container has, with
    `beside` those that a pod beside the tasks takes for one of these reasons.
    """
    return [
        field
        for field in _declared(model)
        if at in (None, field.rule.at) and (beside is None or field.rule.beside in beside)
    ]


@cache
def _declared(model: type[BaseModel]) -> tuple[Declared, ...]:
    return tuple(
        Declared(name, field.alias or name, rule)
        for name, field in model.model_fields.items()
        for rule in field.metadata
        if isinstance(rule, RoleField)
    )


def in_kubernetes(value: BaseModel, at: Holder) -> dict[str, Any]:
    """The value's fields that a pod or a container has, in Kubernetes' form; also those that are empty."""
    return {field.alias: field.rule.form(getattr(value, field.name)) for field in rules(type(value), at)}


def merged(default: BaseModel, given: BaseModel) -> dict[str, Any]:
    """The declared fields of the default's model, each with the value that `given` leads to."""
    return {
        field.name: field.rule.merge(getattr(default, field.name), getattr(given, field.name))
        for field in rules(type(default))
    }
