"""Resolves a role: merges the run's defaults, the role's own fields and its podTemplates. Nothing else merges
them.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from launcher.config import role_fields
from launcher.config.role_fields import Holder
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
    WorkerRole,
    requirements,
)
from launcher.object_names import CONTAINER
from launcher.pod_spec.strategic_merge import strategic_merge
from launcher.quantities import quantity
from worker.contract.environment import ARCHIVE, PORT
from worker.contract.run_config import GRACE_SECONDS, ElasticWorkers
from worker.contract.strategies import BESIDE, STRATEGIES, Kind
from worker.contract.task_names import DATA_WORKER, DISPATCHER, EXTRA_WORKER, task_type

DEFAULT_IMAGE: Final = "tf-launcher-worker:dev"
"""What `make images` builds."""
RUNTIME_COMMAND: Final = ("python", "-m", "worker")
"""The runtime of the image; in `command`, of either."""

# Where every pod has the launcher's own volumes.
CONFIG_PATH: Final = "/etc/tf-launcher"
SOURCE_PATH: Final = "/opt/tf-launcher/source"
RUNTIME_PATH: Final = ARCHIVE.rpartition("/")[0]
PARTS_PATH: Final = "/opt/tf-launcher/parts"
PACKAGES_PATH: Final = "/opt/tf-launcher/packages"
TASK_PATH: Final = "/var/run/tf-launcher"
TASK_VOLUME: Final = "launcher-task"
COPIES_PATH: Final = "/var/run/tf-launcher-copies"
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

Object = dict[str, Any]


@dataclass(frozen=True)
class ResolvedRole:
    """A role with all defaults applied. `launcher.config.spec.Role` is what the file says."""

    name: RoleName
    replicas: int
    min_replicas: int | None
    """None where all tasks are needed."""
    max_replicas: int
    """`replicas`, but of elastic workers."""
    given: RoleTemplate
    """Its fields, over those of `spec.template`; with the chips of a TPU slice, and the labels of its nodes.
    No `podTemplate`: see `pod_templates`.
    """
    pod_templates: tuple[Object, Object]
    """The podTemplate of `spec.template`, and the role's own, which is merged over it."""
    uses_runtime: bool
    """Whether it runs the worker runtime, whose exit codes have a meaning."""
    runs_script: bool
    """Whether its command names a script: an image's own, or one for the runtime to run."""
    runs_code: bool
    """Whether its tasks import the program: a server carries out graphs, and imports nothing of it."""
    packages: str | None
    """Where its tasks install the packages that the program asks for; None where they install none."""
    touches_model_dir: bool
    """Whether its tasks read or write `modelDir`."""
    keeps_copies: bool
    """Whether its tasks keep copies of the training in memory."""
    runtime: str | None
    """Travels or Image, where the file says it. Under Custom, where there is none, Image."""

    @property
    def field(self) -> str:
        """The field of `spec` that gives it."""
        return "dataService" if self.name in DATA_ROLES else task_type(self.name)

    @property
    def elastic(self) -> ElasticWorkers | None:
        """Between which numbers the role's tasks may come and go; None where their number is fixed."""
        if self.min_replicas is None:
            return None
        return ElasticWorkers(self.min_replicas, self.max_replicas, self.replicas)

    @property
    def has_extra(self) -> bool:
        """Whether it has more tasks than the run needs."""
        return self.min_replicas is not None and self.min_replicas < self.replicas

    def patched(self, pod: Mapping[str, Any]) -> Object:
        """The pod template with the podTemplates over it."""
        shared, role_template = self.pod_templates
        return strategic_merge(strategic_merge(pod, shared), role_template)

    @property
    def image(self) -> str:
        """Its image."""
        return self.given.image or DEFAULT_IMAGE

    @property
    def command(self) -> tuple[str, ...] | None:
        """None if the file has none: then it is the worker runtime's, or under Custom the image's own."""
        return self.given.command

    @property
    def args(self) -> tuple[str, ...]:
        """The command's arguments."""
        return self.given.args or ()

    @property
    def env(self) -> tuple[EnvVar, ...]:
        """The user's variables."""
        return self.given.env

    @property
    def port(self) -> int:
        """Where its tasks listen."""
        return self.given.port or PORT

    def fields(self, at: Holder) -> Object:
        """Its fields that a pod or the program's container has, in Kubernetes' form; also those that are
        empty.
        """
        return role_fields.in_kubernetes(self.given, at)

    @cached_property
    def pod(self) -> Object:
        """The part of the pod template that the file decides, with the podTemplates merged over it. Use it
        only after `launcher.validation.pod_template` has checked those.
        """
        container = {"name": CONTAINER, **present(self.fields("container"))}
        spec = {"containers": [container], **present(self.fields("pod"))}
        return self.patched({"metadata": {}, "spec": spec})

    @property
    def _container(self) -> Object:
        container: Object = next(each for each in self.pod["spec"]["containers"] if each["name"] == CONTAINER)
        return container

    @cached_property
    def travels(self) -> bool:
        """Whether the runtime, where the role's tasks need it, is the one that goes with the run."""
        if self.runtime is not None:
            return self.runtime == "Travels"
        return not is_own_image(self._container.get("image") or DEFAULT_IMAGE)

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
    def gpus(self) -> str:
        """The GPUs that the program's container asks for: `nvidia.com/gpu: 8`; "" where it asks for none.

        A device by a claim counts as one: which class it has stands in an object of the cluster's.
        """
        claims = (self._container.get("resources") or {}).get("claims") or ()
        names = dict.fromkeys(claim["name"] for claim in claims)
        return ", ".join([*_gpus(self._limits), *(f"resourceClaim {name}" for name in names)])

    @property
    def memory(self) -> int:
        """The bytes that the program's container may use; 0 where it has no limit."""
        return int(quantity(str(self._limits.get("memory") or "0")))

    @property
    def cpu_request(self) -> float:
        """The processors that the program's container requests; 0 where it requests none."""
        requests = (self._container.get("resources") or {}).get("requests") or {}
        # Kubernetes requests the limit where only that is given.
        return float(quantity(str(requests.get("cpu") or self._limits.get("cpu") or "0")))

    @property
    def _limits(self) -> Object:
        return (self._container.get("resources") or {}).get("limits") or {}

    @property
    def pod_metadata(self) -> Object:
        """The labels and annotations that a podTemplate gives its pods."""
        metadata: Object = self.pod["metadata"]
        return metadata


def resolve(spec: Spec, name: RoleName, role: Role) -> ResolvedRole:
    """The role's fields over those of `spec.template`, over the spec's own image and command and what a TPU
    slice asks of it.
    """
    default = RoleTemplate.model_construct(
        image=spec.image,
        image_pull_policy=spec.image_pull_policy,
        command=spec.command,
        args=spec.args,
        node_selector=_slice_labels(spec, name),
    )
    for layer in (spec.template, role):
        default = RoleTemplate.model_construct(**role_fields.merged(default, layer))
    given = default.model_copy(update={"resources": _resources(spec, name, default.resources)})
    custom = is_custom(spec)
    runs_script = custom or given.command not in (None, RUNTIME_COMMAND) or bool(given.args)
    least = role.min_replicas if isinstance(role, WorkerRole) else None
    most = role.max_replicas if isinstance(role, WorkerRole) and least is not None else None
    return ResolvedRole(
        name=name,
        replicas=role.replicas,
        min_replicas=least,
        max_replicas=role.replicas if most is None else most,
        given=given,
        pod_templates=(spec.template.pod_template, role.pod_template),
        uses_runtime=not custom
        and (given.command is None or given.command[: len(RUNTIME_COMMAND)] == RUNTIME_COMMAND),
        runs_script=runs_script,
        runs_code=_runs_code(spec, name),
        packages=_packages(spec, name),
        touches_model_dir=_touches_model_dir(spec, name),
        keeps_copies=not runs_script and spec.mode == "Train" and _trains(spec, name),
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


def parted(worker: ResolvedRole) -> tuple[ResolvedRole, ResolvedRole]:
    """Elastic workers as two roles: those that the run needs, which a queue admits with it, and the others,
    which it admits one by one.
    """
    least = worker.min_replicas or worker.replicas
    more, most = worker.replicas - least, worker.max_replicas - least
    extra = dataclasses.replace(
        worker, name=EXTRA_WORKER, replicas=more, min_replicas=None, max_replicas=most
    )
    return dataclasses.replace(worker, replicas=least, max_replicas=least), extra


def present(fields: Mapping[str, Any]) -> Object:
    """The fields that are not empty."""
    return {name: value for name, value in fields.items() if value not in (None, {}, [], ())}


def is_own_image(image: str) -> bool:
    """Whether it has the launcher's runtime in it, by the last part of its name: `tf-launcher-worker`, of any
    registry, with any tag or digest.
    """
    name = image.rpartition("/")[2].partition("@")[0].partition(":")[0]
    return name == DEFAULT_IMAGE.partition(":")[0]


def gang(spec: Spec) -> Gang | None:
    """What starts the run's pods together, or None. `queue` without `gang` means Kueue."""
    scheduling = spec.scheduling
    return scheduling.gang or ("Kueue" if scheduling.queue is not None else None)


def is_custom(spec: Spec) -> bool:
    """Whether the tasks run the commands of their images, and not the worker runtime."""
    return STRATEGIES[spec.strategy].kind is Kind.OWN_COMMAND


def given_resources(spec: Spec, role: Role) -> Resources:
    """What the file gives the role, without what a TPU slice adds."""
    return role.resources or spec.template.resources


def _resources(spec: Spec, name: RoleName, given: Resources) -> Resources:
    """The resources with a TPU slice's chips, of which the file may give another number."""
    shape = spec.strategy_options.topology
    is_given = TPU_RESOURCE in requirements(given).get("limits", {})
    if not _is_on_slice(spec, name) or shape is None or is_given:
        return given
    chips = {TPU_RESOURCE: str(math.prod(map(int, shape.split("x"))))}
    if isinstance(given, Requirements):
        return given.model_copy(update={"limits": {**given.limits, **chips}})
    return {**given, **chips}


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
    return STRATEGIES[spec.strategy].on_slice and name not in BESIDE


def _gpus(limits: Mapping[str, Any]) -> list[str]:
    """The GPUs among the limits of a container, as `nvidia.com/gpu: 8`."""
    asked = {name: str(count) for name, count in limits.items() if _GPU.fullmatch(name)}
    return [f"{name}: {count}" for name, count in asked.items() if count != "0"]


def covers(mount_path: str, path: str) -> bool:
    """Whether the path lies at or under the mount."""
    mount = mount_path.rstrip("/")
    return path == mount or path.startswith(f"{mount}/")


def _runs_code(spec: Spec, role: RoleName) -> bool:
    return task_type(role) not in (*DATA_ROLES, "ps", *STRATEGIES[spec.strategy].servers)


def _packages(spec: Spec, role: RoleName) -> str | None:
    program = spec.program
    if program is None or not program.packages or not _runs_code(spec, role):
        return None
    return program.packages_cache or PACKAGES_PATH


def _trains(spec: Spec, role: RoleName) -> bool:
    """Whether its tasks hold the state of the training; a worker of a coordinator has none of it."""
    strategy = STRATEGIES[spec.strategy]
    name = task_type(role)
    return name in strategy.losses and (name == "ps" or name not in strategy.servers)


def _touches_model_dir(spec: Spec, role: RoleName) -> bool:
    """Parameter servers and their workers do not, since the coordinator saves and restores. In a collective
    every worker restores for itself. The dispatcher keeps its journal there, unless it is behind a URL.
    """
    if role in ("ps", DATA_WORKER):
        return False
    if role == DISPATCHER:
        return (spec.model_dir or "").startswith("/")
    return task_type(role) not in STRATEGIES[spec.strategy].servers
