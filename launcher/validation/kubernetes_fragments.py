"""Checks Kubernetes' own fields in a file, as an API server would."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from launcher.config.role_fields import Holder, rules
from launcher.config.spec import RoleTemplate, TensorBoard
from launcher.config.yaml_parser import FieldPath
from launcher.plan.topology import Topology
from launcher.pod_spec.pod_fields import Check
from launcher.pod_spec.strategic_merge import MERGE_KEYS

Violation = tuple[FieldPath, str]

_TYPES: Final[Mapping[Holder, str]] = {"pod": "PodSpec", "container": "Container"}


def of_role(template: RoleTemplate | TensorBoard, here: FieldPath) -> Iterator[Violation]:
    """Yields what is wrong in those fields of a role, or of `spec.template`, that are Kubernetes' own."""
    patch = getattr(template, "pod_template", {})
    given = [
        (at, field.alias, value)
        for at in _TYPES
        for field in rules(type(template), at)
        if (value := field.rule.form(getattr(template, field.name))) not in (None, {}, [])
    ]
    if not given and not patch:
        return
    check = Check()
    for at, alias, value in given:
        yield from check.of_field(value, _TYPES[at], alias, here)
    yield from Check(patch=True).problems(patch, "PodTemplateSpec", (*here, "podTemplate"))


def of_pods(topology: Topology) -> Iterator[Violation]:
    """Yields what is wrong with the merged podTemplates, each of which is valid by itself."""
    violations: dict[Violation, None] = {}
    for role in topology.roles:
        shared, role_pod_template = role.pod_templates
        if not role_pod_template and not shared:
            continue
        for path, message in Check().problems(role.pod, "PodTemplateSpec", ()):
            # The role's own template is merged last and overrides the other.
            given, holder = max(
                (_given(path, role.pod, role_pod_template), role.field),
                (_given(path, role.pod, shared), "template"),
                key=lambda one: len(one[0]),
            )
            if len(given) >= len(path) - 1:
                violations[("spec", holder, "podTemplate", *given, *path[len(given) :]), message] = None
    yield from violations


def _given(path: FieldPath, merged: Any, patch: Any) -> FieldPath:
    """Returns the path in the patch of the merged value at `path`, as far as the patch has it."""
    steps: list[str | int] = []
    name = ""
    step: str | int
    for part in path:
        if isinstance(part, str):
            if not isinstance(patch, Mapping) or part not in patch:
                break
            step = name = part
        else:
            entries = list(patch) if isinstance(patch, list | tuple) else []
            key = MERGE_KEYS.get(name)
            index = part
            if key is not None:
                known = merged[part].get(key)
                index = next((i for i, entry in enumerate(entries) if entry.get(key) == known), len(entries))
            if index >= len(entries):
                break
            patch, step = entries, index
        steps.append(step)
        patch = patch[step]
        merged = merged.get(part) if isinstance(merged, Mapping) else merged[part]
    return tuple(steps)
