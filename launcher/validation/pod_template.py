"""The user's `podTemplate`s: what is wrong with one, and what of a pod it must leave alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from launcher import object_names
from launcher.config.yaml_parser import FieldPath
from launcher.object_names import CONTAINER
from launcher.plan.roles import CONFIG_PATH, TASK_PATH, TASK_VOLUME
from launcher.pod_spec.strategic_merge import DIRECTIVE, check, strategic_merge
from worker.contract.environment import Env

Object = dict[str, Any]

# Stands for a value of the launcher. Only whether it is unchanged is checked.
_OURS: Final = "(launcher)"
_SKELETON: Final[Object] = {
    "metadata": {"labels": {object_names.RUN_LABEL: _OURS, object_names.ROLE_LABEL: _OURS}},
    "spec": {
        "restartPolicy": "Never",
        "subdomain": _OURS,
        "volumes": [{"name": "launcher-config"}, {"name": TASK_VOLUME}],
        "containers": [
            {
                "name": CONTAINER,
                "env": [{"name": name, "value": _OURS} for name in sorted(Env.RESERVED)],
                "volumeMounts": [
                    {"name": "launcher-config", "mountPath": CONFIG_PATH},
                    {"name": TASK_VOLUME, "mountPath": TASK_PATH},
                ],
            }
        ],
    },
}


def broken(template: Mapping[str, Any], here: FieldPath) -> Iterator[tuple[FieldPath, str]]:
    """What is wrong with one podTemplate, `here` being its path."""
    problems = [*_form(template), *check(template)]
    if not problems:
        problems = list(_kept(strategic_merge(_SKELETON, template)))
    yield from (((*here, *path), message) for path, message in problems)


def _form(template: Mapping[str, Any]) -> Iterator[tuple[FieldPath, str]]:
    for name, value in template.items():
        if name not in ("metadata", "spec"):
            yield (name,), "unknown field; a podTemplate has metadata and spec"
        elif not isinstance(value, Mapping):
            yield (name,), "expected a mapping"
        elif DIRECTIVE in value:
            message = "it would take away all that the launcher writes there: name the fields to be replaced"
            yield (name, DIRECTIVE), message
    given = template.get("metadata")
    for name in ("labels", "annotations"):
        values = given.get(name, {}) if isinstance(given, Mapping) else {}
        if not isinstance(values, Mapping):
            yield ("metadata", name), "expected a mapping"
        elif wrong := [key for key, value in values.items() if not isinstance(value, str | None)]:
            yield ("metadata", name, wrong[0]), "expected a string: put it in quotes"


def _kept(template: Mapping[str, Any]) -> Iterator[tuple[FieldPath, str]]:
    labels = (template.get("metadata") or {}).get("labels") or {}
    if any(labels.get(key) != _OURS for key in (object_names.RUN_LABEL, object_names.ROLE_LABEL)):
        yield ("metadata", "labels"), "the launcher's own labels say whose pod it is: leave them as they are"
    pod = template.get("spec") or {}
    if pod.get("restartPolicy") != "Never":
        yield ("spec", "restartPolicy"), "expected Never: its Job tries a task again; remove it"
    if pod.get("subdomain") != _OURS or "hostname" in pod:
        name = "hostname" if "hostname" in pod else "subdomain"
        yield ("spec", name), "the tasks find each other by the launcher's names: remove it"
    containers: list[Object] = pod.get("containers") or []
    container = next((each for each in containers if each["name"] == CONTAINER), None)
    if container is None or containers[0] is not container:
        yield ("spec", "containers"), f"the container {CONTAINER} runs the program: leave it there"
        return
    ours = _SKELETON["spec"]["containers"][0]
    given = {variable["name"]: variable for variable in container.get("env") or ()}
    for variable in ours["env"]:
        if given.get(variable["name"]) != variable:
            message = f"{variable['name']} is set by the launcher in every pod: leave it as it is"
            yield ("spec", "containers"), message
            break
    mounted = [mount for mount in container.get("volumeMounts") or () if mount in ours["volumeMounts"]]
    volumes = [volume for volume in pod.get("volumes") or () if volume in _SKELETON["spec"]["volumes"]]
    if len(mounted) < 2 or len(volumes) < 2:
        yield ("spec",), f"what the launcher mounts at {CONFIG_PATH} and {TASK_PATH} must stay there"
