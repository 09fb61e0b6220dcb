"""What one role's container is, once the run's defaults and the role's own fields are put together."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from launcher.spec import JobMetadata, Requirements, Role, RoleName, Spec, TensorBoard

DEFAULT_IMAGE: Final = "tf-launcher-worker:dev"
"""What `make images` builds."""
RUNTIME_COMMAND: Final = ("python", "-m", "worker")

# Where every pod has the launcher's own volumes.
CONFIG_PATH: Final = "/etc/tf-launcher"
SOURCE_PATH: Final = "/opt/tf-launcher/source"
TASK_PATH: Final = "/var/run/tf-launcher"
TMP_PATH: Final = "/tmp"  # noqa: S108 - a path in the pod
SHM_PATH: Final = "/dev/shm"  # noqa: S108 - a path in the pod

TPU_RESOURCE: Final = "google.com/tpu"
"""What GKE's device plugin offers: TPU chips."""

# nvidia.com/gpu, nvidia.com/gpu.shared, nvidia.com/mig-1g.5gb, amd.com/gpu, gpu.intel.com/xe
_GPU: Final = re.compile(r"gpu\.[^/]+/.+|[^/]+/(gpu|mig-).*")

Entry = TypeVar("Entry")


def effective(spec: Spec, role: Role) -> Role:
    """The role with `spec.template`, and the spec's own image and command, filled in. The role's fields win;
    maps and lists of named entries are put together one by one.
    """
    template = spec.template

    def named(field: str, key: Callable[[Any], object]) -> tuple[Any, ...]:
        return _merged(getattr(template, field), getattr(role, field), key)

    return role.model_copy(
        update={
            "image": role.image or template.image or spec.image or DEFAULT_IMAGE,
            "image_pull_policy": role.image_pull_policy
            or template.image_pull_policy
            or spec.image_pull_policy,
            "image_pull_secrets": named("image_pull_secrets", lambda secret: secret["name"]),
            "command": _first(role.command, template.command, spec.command),
            "args": _first(role.args, template.args, spec.args),
            "working_dir": role.working_dir or template.working_dir,
            "env": named("env", lambda variable: variable.name),
            "env_from": template.env_from + role.env_from,
            "resources": role.resources or template.resources,
            "allow_cpu": template.allow_cpu if role.allow_cpu is None else role.allow_cpu,
            "volumes": named("volumes", lambda volume: volume["name"]),
            "volume_mounts": named("volume_mounts", lambda mount: mount.mount_path),
            "node_selector": {**template.node_selector, **role.node_selector},
            "tolerations": template.tolerations + role.tolerations,
            "affinity": role.affinity or template.affinity,
            "job_metadata": JobMetadata.model_construct(
                labels={**template.job_metadata.labels, **role.job_metadata.labels},
                annotations={**template.job_metadata.annotations, **role.job_metadata.annotations},
            ),
            "service_account_name": role.service_account_name or template.service_account_name,
            "port": role.port or template.port,
            "restart_policy": role.restart_policy or template.restart_policy,
        }
    )


def is_custom(spec: Spec) -> bool:
    """Whether the images' own commands decide everything, and none is the worker runtime's."""
    return spec.strategy == "Custom"


def uses_runtime(spec: Spec, role: Role) -> bool:
    """Whether an effective role runs the worker runtime, whose exit codes have a meaning."""
    if is_custom(spec):
        return False
    return role.command is None or role.command[: len(RUNTIME_COMMAND)] == RUNTIME_COMMAND


def runs_script(spec: Spec, role: Role) -> bool:
    """Whether an effective role's command names a script: an image's own, or one for the runtime to run."""
    return is_custom(spec) or role.command not in (None, RUNTIME_COMMAND) or bool(role.args)


def requirements(role: Role | TensorBoard) -> dict[str, dict[str, str]]:
    """Kubernetes' ResourceRequirements of the role."""
    if isinstance(role.resources, Requirements):
        return {name: value for name, value in role.resources.model_dump().items() if value}
    limits = {name: value for name, value in role.resources.items() if name != "cpu"}
    both = {"requests": dict(role.resources), "limits": limits}
    return {name: value for name, value in both.items() if value}


def asks_for_gpus(role: Role) -> bool:
    """Whether an effective role asks for GPUs, by the resources' names."""
    return bool(gpus(requirements(role).get("limits", {})))


def gpus(limits: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The GPUs among the limits of a container, by name and count."""
    asked = [(name, str(count)) for name, count in limits.items() if _GPU.fullmatch(name)]
    return [(name, count) for name, count in asked if count != "0"]


def for_accelerators(spec: Spec, name: RoleName, role: Role) -> Role:
    """The effective role with what its TPU slice asks of node and container; its own fields win.

    https://cloud.google.com/kubernetes-engine/docs/how-to/tpus#workload-preparation
    """
    options = spec.strategy_options
    if spec.strategy != "TPU" or name == "evaluator":
        return role
    selector = {
        "cloud.google.com/gke-tpu-accelerator": options.accelerator,
        "cloud.google.com/gke-tpu-topology": options.topology,
    }
    given = {label: value for label, value in selector.items() if value is not None}
    resources = role.resources
    if options.topology is not None and TPU_RESOURCE not in requirements(role).get("limits", {}):
        chips = {TPU_RESOURCE: str(math.prod(map(int, options.topology.split("x"))))}
        if isinstance(resources, Requirements):
            resources = resources.model_copy(update={"limits": {**resources.limits, **chips}})
        else:
            resources = {**resources, **chips}
    return role.model_copy(update={"node_selector": {**given, **role.node_selector}, "resources": resources})


def touches_model_dir(spec: Spec, role: RoleName) -> bool:
    """Whether the role's tasks read or write `modelDir`. A parameter server and its workers do not: the
    coordinator saves and restores. In a collective every worker restores for itself.
    """
    if role == "ps":
        return False
    return role != "worker" or spec.strategy != "ParameterServer"


def covers(mount_path: str, path: str) -> bool:
    """Whether the path lies at or under the mount."""
    mount = mount_path.rstrip("/")
    return path == mount or path.startswith(f"{mount}/")


def _first(*values: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return next((value for value in values if value is not None), None)


def _merged(
    defaults: Iterable[Entry], own: Iterable[Entry], key: Callable[[Entry], object]
) -> tuple[Entry, ...]:
    entries: dict[object, Entry] = {key(entry): entry for entry in defaults}
    entries.update((key(entry), entry) for entry in own)
    return tuple(entries.values())
