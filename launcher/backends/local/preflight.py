"""What this machine cannot do: refused before anything starts, or named once and ignored."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from launcher.backends.local import file_format
from launcher.backends.local.pod import volume_paths
from launcher.backends.local.pod.environment import MissingError
from launcher.backends.local.pod.pods import VOLUME_KINDS, PodTemplate
from launcher.backends.local.store import RunDirectory, Submission
from launcher.backends.run_facts import clean_policy, submitted
from launcher.config.role_fields import IGNORED_IN_TEMPLATES, Holder, rules
from launcher.config.spec import RoleTemplate, Scheduling
from launcher.errors import BackendError

_OBJECTS: Final = ("Job", "Service", "ConfigMap", "PersistentVolumeClaim", "Deployment")
"""Kinds that have a meaning here. A Service's is that every address is known; a Deployment is TensorBoard's,
which the command `tensorboard` starts."""


def check(directory: RunDirectory, submission: Submission) -> None:
    """Raises BackendError with everything that keeps the run from starting here."""
    problems: list[str] = []
    if wrong := file_format.mismatch_of_submission(dataclasses.asdict(submission)):
        problems.append(wrong)
    for job in submission.of_kind("Job") if not problems else ():
        template = PodTemplate(directory, submission, job)
        problems += (f"{template.role}: {problem}" for problem in _problems(template))
    if problems:
        raise BackendError(
            "this machine cannot run it:\n" + "\n".join(f"  {problem}" for problem in problems),
            "The local backend runs the cluster's own commands, without images, Secrets or shared storage.",
        )


def _problems(template: PodTemplate) -> Iterator[str]:
    container = template.container
    if wrong := [*volume_paths.problems(template.spec, template.config_keys)]:
        yield from wrong
        return
    for volume in template.spec.get("volumes") or ():
        kinds = [kind for kind in volume if kind != "name"]
        path = template.mount_path(volume["name"])
        if path and not any(kind in VOLUME_KINDS for kind in kinds) and not Path(path).is_dir():
            kind = kinds[0] if kinds else "empty"
            yield (
                f"volume {volume['name']} ({kind}) is not on this machine: expected "
                f"{', '.join(VOLUME_KINDS)}, or a directory {path}"
            )
        host = volume.get("hostPath") or {}
        if host and host.get("type") != "DirectoryOrCreate" and not Path(host["path"]).exists():
            yield f"volume {volume['name']}: {host['path']} is not on this machine"
    try:
        launch = template.launch(template.pod(0, 0, ""))
    except MissingError as missing:
        yield f"{missing} is not on this machine: {missing.advice}"
        return
    except volume_paths.OutsideError as outside:
        yield str(outside)
        return
    if not container.get("command"):
        yield (
            "the image's own command is not known here: expected a command, such as "
            "command: [python, train.py]"
        )
    elif (
        shutil.which(launch.argv[0], path=launch.env["PATH"]) is None
        and not (launch.cwd / launch.argv[0]).exists()
    ):
        yield f"command {launch.argv[0]} is not on this machine"
    working = container.get("workingDir")
    if working is not None and str(launch.cwd) == working and not launch.cwd.is_dir():
        yield f"workingDir {working} is not on this machine"


def left_out(submission: Submission) -> str:
    """One line that names what the run's file asks for and this machine ignores; "" when there is nothing.
    Of objects that were not made of a file, all of them.
    """
    names: dict[str, None] = {}
    given = [spec for job in submission.of_kind("Job") if (spec := submitted(job, "spec")) is not None]
    written = {name for spec in given for name in _names(spec)}
    for job in submission.of_kind("Job"):
        spec = job["spec"]["template"]["spec"]
        containers = spec["containers"]
        ignored_names = [name for name in ignored("container") if containers[0].get(name)]
        ignored_names += [name for name in ignored("pod") if spec.get(name)]
        names.update((name, None) for name in ignored_names if name in written or not given)
        if len(containers) > 1:
            names[f"containers beside {containers[0]['name']}"] = None
    for job in submission.of_kind("Job"):
        if (policy := clean_policy(job)) != "Running":
            names[f"cleanPolicy {policy} (tasks that still run are stopped, logs stay)"] = None
        scheduling = submitted(job, "spec", "scheduling") or {}
        names.update((f"scheduling.{name}", None) for name in ("queue", "gang") if name in scheduling)
    if not given:
        names.update((item["kind"], None) for item in submission.objects if item["kind"] not in _OBJECTS)
    return f"ignored locally: {', '.join(names)}" if names else ""


def ignored(at: Holder) -> list[str]:
    """The fields of pods, or of their containers, that have no meaning here."""
    declared = [*rules(RoleTemplate, at), *rules(Scheduling, at)]
    return [field.alias for field in declared if field.rule.ignored_here] + [*IGNORED_IN_TEMPLATES[at]]


def _names(value: Any) -> Iterator[str]:
    """Of all fields in it."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield str(name)
            yield from _names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _names(inner)
