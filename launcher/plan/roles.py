"""Resolves a role: merges the run's defaults, the role's own fields and its podTemplates. Nothing else merges
them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeVar

from launcher.config.spec import (
    MOST_DATA_WORKERS,
    DataService,
    EnvVar,
    Gang,
    Requirements,
    Resources,
    Role,
    RoleName,
    RoleTemplate,
    Spec,
    VolumeMount,
    WorkerRole,
)
from launcher.naming import CONTAINER
from launcher.pod_spec.strategic_merge import strategic_merge
from worker.contract import ARCHIVE, DATA_WORKER, DISPATCHER, GRACE_SECONDS, PORT, ElasticWorkers

DEFAULT_IMAGE: Final = "tf-launcher-worker:dev"
"""What `make images` builds."""
RUNTIME_COMMAND: Final = ("python", "-m", "worker")
"""The runtime of the image; in `command`, of either."""

# Where every pod has the launcher's own volumes.
CONFIG_PATH: Final = "/etc/tf-launcher"
SOURCE_PATH: Final = "/opt/tf-launcher/source"
RUNTIME_PATH: Final = ARCHIVE.rpartition("/")[0]
TASK_PATH: Final = "/var/run/tf-launcher"
TMP_PATH: Final = "/tmp"  # noqa: S108 - a path in the pod
SHM_PATH: Final = "/dev/shm"  # noqa: S108 - a path in the pod

TRAVELLING_COMMAND: Final = ("python3", ARCHIVE)
"""The runtime that goes with the run. Debian and Ubuntu have no `python` of that name, and every virtual
environment has both."""

TPU_RESOURCE: Final = "google.com/tpu"
"""What GKE's device plugin offers: TPU chips."""

DATA_ROLES: Final[tuple[RoleName, RoleName]] = (DISPATCHER, DATA_WORKER)
"""The roles of `spec.dataService`."""
_SCALED_TO: Final = 4
"""`scale` may give a run so many times the data workers that its file has, and `_LEAST_MOST` in any case. On
this machine each of them has a port from the start.
"""
_LEAST_MOST: Final = 16
_DISPATCHER_RESOURCES: Final = Requirements(requests={"cpu": "100m", "memory": "512Mi"})
"""It keeps the graphs of datasets, of at most 2 GB each, and no data: so it has no limit."""

# nvidia.com/gpu, nvidia.com/gpu.shared, nvidia.com/mig-1g.5gb, amd.com/gpu, gpu.intel.com/xe
_GPU: Final = re.compile(r"gpu\.[^/]+/.+|[^/]+/(gpu|mig-).*")

Entry = TypeVar("Entry")
Object = dict[str, Any]


@dataclass(frozen=True)
class ResolvedRole:
    """A role with all defaults applied. `launcher.config.spec.Role` is what the file says. Fields of the same
    name have the same form in both, unless a docstring here says otherwise.
    """

    name: RoleName
    replicas: int
    min_replicas: int | None
    """None where all tasks are needed."""
    max_replicas: int
    """`replicas`, but of elastic workers."""
    image: str
    image_pull_policy: str | None
    image_pull_secrets: tuple[Object, ...]
    command: tuple[str, ...] | None
    """None if the file has none: then it is the worker runtime's, or under Custom the image's own."""
    args: tuple[str, ...]
    working_dir: str | None
    env: tuple[EnvVar, ...]
    env_from: tuple[Object, ...]
    resources: Mapping[str, Mapping[str, str]]
    """Kubernetes' ResourceRequirements, with the chips of a TPU slice."""
    allow_cpu: bool
    volumes: tuple[Object, ...]
    volume_mounts: tuple[VolumeMount, ...]
    node_selector: Mapping[str, str]
    """With the labels of a TPU slice's nodes."""
    tolerations: tuple[Object, ...]
    affinity: Mapping[str, Any]
    service_account_name: str | None
    port: int
    restart_policy: str | None
    job_labels: Mapping[str, str]
    job_annotations: Mapping[str, str]
    pod_templates: tuple[Object, Object]
    """The podTemplate of `spec.template`, and the role's own, which is merged over it."""
    uses_runtime: bool
    """Whether it runs the worker runtime, whose exit codes have a meaning."""
    runs_script: bool
    """Whether its command names a script: an image's own, or one for the runtime to run."""
    touches_model_dir: bool
    """Whether its tasks read or write `modelDir`."""
    runtime: str | None
    """Travels or Image, where the file says it. Under Custom, where there is none, Image."""

    @property
    def field(self) -> str:
        """The field of `spec` that gives it."""
        return "dataService" if self.name in DATA_ROLES else self.name

    @property
    def elastic(self) -> ElasticWorkers | None:
        """Between which numbers the role's tasks may come and go; None where their number is fixed."""
        if self.min_replicas is None:
            return None
        return ElasticWorkers(self.min_replicas, self.max_replicas, self.replicas)

    def patched(self, pod: Mapping[str, Any]) -> Object:
        """The pod template with the podTemplates over it."""
        shared, own = self.pod_templates
        return strategic_merge(strategic_merge(pod, shared), own)

    @cached_property
    def pod(self) -> Object:
        """The part of the pod template that the file decides, with the podTemplates merged over it. Use it
        only after `launcher.plan.pod_template` has checked those.
        """
        container: Object = {
            "name": CONTAINER,
            "env": [variable.model_dump(exclude_none=True) for variable in self.env],
            "envFrom": list(self.env_from),
            "volumeMounts": [mount.model_dump(exclude_none=True) for mount in self.volume_mounts],
        }
        if self.resources:
            container["resources"] = self.resources
        spec = {
            "affinity": self.affinity,
            "containers": [container],
            "imagePullSecrets": list(self.image_pull_secrets),
            "tolerations": list(self.tolerations),
            "volumes": list(self.volumes),
        }
        return self.patched({"metadata": {}, "spec": spec})

    @property
    def _container(self) -> Object:
        found: Object = next(each for each in self.pod["spec"]["containers"] if each["name"] == CONTAINER)
        return found

    @cached_property
    def travels(self) -> bool:
        """Whether the runtime, where the role's tasks need it, is the one that goes with the run."""
        if self.runtime is not None:
            return self.runtime == "Travels"
        return not is_own_image(self._container.get("image") or self.image)

    @property
    def pod_volumes(self) -> dict[str, Object]:
        """The user's volumes by name, wherever they are given."""
        return {volume["name"]: volume for volume in self.pod["spec"].get("volumes") or ()}

    @property
    def pod_mounts(self) -> list[Object]:
        """The user's mounts in the program's container, wherever they are given."""
        return self._container.get("volumeMounts") or []

    @property
    def grace_seconds(self) -> int:
        """The pods' terminationGracePeriodSeconds."""
        return int(self.pod["spec"].get("terminationGracePeriodSeconds") or GRACE_SECONDS)

    @property
    def asks_for_gpus(self) -> bool:
        """Whether its resources have GPUs; what a podTemplate asks for does not count."""
        return bool(_gpus(self.resources.get("limits", {})))

    @property
    def gpus(self) -> str:
        """The GPUs that the program's container asks for: `nvidia.com/gpu: 8`; "" where it asks for none."""
        limits = (self._container.get("resources") or {}).get("limits") or {}
        return ", ".join(f"{name}: {count}" for name, count in _gpus(limits))

    @property
    def pod_metadata(self) -> Object:
        """The labels and annotations that a podTemplate gives its pods."""
        found: Object = self.pod["metadata"]
        return found


def resolve(spec: Spec, name: RoleName, role: Role) -> ResolvedRole:
    """The role with `spec.template`, the spec's own image and command, and what a TPU slice asks of it. The
    role's fields win; maps and lists of named entries are merged entry by entry.
    """
    template = spec.template
    command = _first(role.command, template.command, spec.command)
    args = _first(role.args, template.args, spec.args) or ()
    custom = is_custom(spec)
    least = role.min_replicas if isinstance(role, WorkerRole) else None
    most = role.max_replicas if isinstance(role, WorkerRole) and least is not None else None
    return ResolvedRole(
        name=name,
        replicas=role.replicas,
        min_replicas=least,
        max_replicas=role.replicas if most is None else most,
        image=role.image or template.image or spec.image or DEFAULT_IMAGE,
        image_pull_policy=role.image_pull_policy or template.image_pull_policy or spec.image_pull_policy,
        image_pull_secrets=_merged(
            template.image_pull_secrets, role.image_pull_secrets, lambda secret: secret["name"]
        ),
        command=command,
        args=args,
        working_dir=role.working_dir or template.working_dir,
        env=_merged(template.env, role.env, lambda variable: variable.name),
        env_from=template.env_from + role.env_from,
        resources=_resources(spec, name, role),
        allow_cpu=bool(template.allow_cpu if role.allow_cpu is None else role.allow_cpu),
        volumes=_merged(template.volumes, role.volumes, lambda volume: volume["name"]),
        volume_mounts=_merged(template.volume_mounts, role.volume_mounts, lambda mount: mount.mount_path),
        node_selector={**_slice_labels(spec, name), **template.node_selector, **role.node_selector},
        tolerations=template.tolerations + role.tolerations,
        affinity=role.affinity or template.affinity,
        service_account_name=role.service_account_name or template.service_account_name,
        port=role.port or template.port or PORT,
        restart_policy=role.restart_policy or template.restart_policy,
        job_labels={**template.job_metadata.labels, **role.job_metadata.labels},
        job_annotations={**template.job_metadata.annotations, **role.job_metadata.annotations},
        pod_templates=(template.pod_template, role.pod_template),
        uses_runtime=not custom and (command is None or command[: len(RUNTIME_COMMAND)] == RUNTIME_COMMAND),
        runs_script=custom or command not in (None, RUNTIME_COMMAND) or bool(args),
        touches_model_dir=_touches_model_dir(spec, name),
        runtime="Image" if custom else spec.runtime,
    )


def of_data_service(service: DataService, *, fixed: bool) -> tuple[tuple[RoleName, Role], ...]:
    """The two roles of the data service, as roles of the file. Data workers may come and go, unless each has
    a fixed part of the data or the number of pods is `fixed`.
    """
    given = {
        name: getattr(service, name) for name in service.model_fields_set & RoleTemplate.model_fields.keys()
    }
    dispatcher = {**given, "replicas": 1, "resources": _DISPATCHER_RESOURCES}
    workers = {**given, "replicas": service.workers}
    if service.sharding != "FileOrData" and not fixed:
        most = min(max(_SCALED_TO * service.workers, _LEAST_MOST), MOST_DATA_WORKERS)
        workers |= {"min_replicas": 1, "max_replicas": most}
    return (
        (DISPATCHER, Role.model_construct(**dispatcher)),
        (DATA_WORKER, WorkerRole.model_construct(**workers)),
    )


def is_own_image(image: str) -> bool:
    """Whether it has the launcher's runtime in it, by the last part of its name: `tf-launcher-worker`, of any
    registry, with any tag or digest.
    """
    name = image.rpartition("/")[2].partition("@")[0].partition(":")[0]
    return name == DEFAULT_IMAGE.partition(":")[0]


def gang(spec: Spec) -> Gang | None:
    """What starts the run's pods together: Kueue, Volcano, Coscheduling, or None. `queue` without `gang`
    means Kueue.
    """
    scheduling = spec.scheduling
    return scheduling.gang or ("Kueue" if scheduling.queue is not None else None)


def is_custom(spec: Spec) -> bool:
    """Whether the tasks run the commands of their images, and not the worker runtime."""
    return spec.strategy == "Custom"


def requirements(resources: Resources) -> dict[str, dict[str, str]]:
    """Kubernetes' ResourceRequirements."""
    if isinstance(resources, Requirements):
        return {name: value for name, value in resources.model_dump().items() if value}
    limits = {name: value for name, value in resources.items() if name != "cpu"}
    both = {"requests": dict(resources), "limits": limits}
    return {name: value for name, value in both.items() if value}


def given_resources(spec: Spec, role: Role) -> Resources:
    """What the file gives the role, without what a TPU slice adds."""
    return role.resources or spec.template.resources


def _resources(spec: Spec, name: RoleName, role: Role) -> dict[str, dict[str, str]]:
    """The resources with a TPU slice's chips, of which the file may give another number."""
    resources, shape = given_resources(spec, role), spec.strategy_options.topology
    asked = requirements(resources)
    if not _is_on_slice(spec, name) or shape is None or TPU_RESOURCE in asked.get("limits", {}):
        return asked
    chips = {TPU_RESOURCE: str(math.prod(map(int, shape.split("x"))))}
    if isinstance(resources, Requirements):
        return requirements(resources.model_copy(update={"limits": {**resources.limits, **chips}}))
    return requirements({**resources, **chips})


def _slice_labels(spec: Spec, name: RoleName) -> dict[str, str]:
    """Those of the nodes with the role's TPU slice.

    https://cloud.google.com/kubernetes-engine/docs/how-to/tpus#workload-preparation
    """
    options = spec.strategy_options
    selector = {
        "cloud.google.com/gke-tpu-accelerator": options.accelerator,
        "cloud.google.com/gke-tpu-topology": options.topology,
    }
    if not _is_on_slice(spec, name):
        return {}
    return {label: value for label, value in selector.items() if value is not None}


def _is_on_slice(spec: Spec, name: RoleName) -> bool:
    return spec.strategy == "TPU" and name not in ("evaluator", *DATA_ROLES)


def _gpus(limits: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The GPUs among the limits of a container, by name and count."""
    asked = [(name, str(count)) for name, count in limits.items() if _GPU.fullmatch(name)]
    return [(name, count) for name, count in asked if count != "0"]


def covers(mount_path: str, path: str) -> bool:
    """Whether the path lies at or under the mount."""
    mount = mount_path.rstrip("/")
    return path == mount or path.startswith(f"{mount}/")


def _touches_model_dir(spec: Spec, role: RoleName) -> bool:
    """Parameter servers and their workers do not, since the coordinator saves and restores. In a collective
    every worker restores for itself. The dispatcher keeps its journal there, unless it is behind a URL.
    """
    if role in ("ps", DATA_WORKER):
        return False
    if role == DISPATCHER:
        return (spec.model_dir or "").startswith("/")
    return role != "worker" or spec.strategy != "ParameterServer"


def _first(*values: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return next((value for value in values if value is not None), None)


def _merged(
    defaults: Iterable[Entry], own: Iterable[Entry], key: Callable[[Entry], object]
) -> tuple[Entry, ...]:
    entries: dict[object, Entry] = {key(entry): entry for entry in defaults}
    entries.update((key(entry), entry) for entry in own)
    return tuple(entries.values())
