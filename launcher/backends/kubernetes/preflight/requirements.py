"""What a run's objects need of a cluster beyond Kubernetes itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from launcher.backends.kubernetes.api_server.api_errors import ApiError
from launcher.backends.kubernetes.api_server.client import Client
from launcher.backends.kubernetes.api_server.parallel import together
from launcher.backends.kubernetes.api_server.resources import kind_of, resource
from launcher.backends.kubernetes.preflight.needed_rights import TENSORBOARD
from launcher.errors import BackendError
from launcher.object_names import QUEUE_LABEL
from launcher.status import labels_of


@dataclass(frozen=True)
class Extension:
    """A project that adds a kind to clusters, and which field of the file asks for it."""

    kind: str
    project: str
    field: str
    address: str

    @property
    def missing(self) -> str:
        """What to say where it is not there."""
        return f"{self.project} is not installed: the cluster does not know {resource(self.kind)}"

    @property
    def advice(self) -> str:
        """What to do about it."""
        return f"Ask the administrator for it ({self.address}), or change {self.field}."


KUEUE: Final = Extension(
    "Workload", "Kueue", "spec.scheduling.queue (or gang: Kueue)", "https://kueue.sigs.k8s.io"
)
EXTENSIONS: Final = (
    KUEUE,
    Extension(
        "PodGroup.scheduling.k8s.io",
        "Kubernetes' own gang",
        "spec.scheduling.gang: Kubernetes",
        "https://kubernetes.io/docs/concepts/scheduling-eviction/gang-scheduling/; alpha in 1.36, by the "
        "feature gates GenericWorkload and GangScheduling",
    ),
    Extension(
        "PodGroup.scheduling.volcano.sh", "Volcano", "spec.scheduling.gang: Volcano", "https://volcano.sh"
    ),
    Extension(
        "PodGroup.scheduling.x-k8s.io",
        "scheduler-plugins' coscheduling",
        "spec.scheduling.gang: Coscheduling",
        "https://scheduler-plugins.sigs.k8s.io",
    ),
    Extension(
        "PodMonitor",
        "the Prometheus operator",
        "spec.monitoring.podMonitor",
        "https://prometheus-operator.dev",
    ),
)


def queues(objects: Iterable[Mapping[str, Any]]) -> list[str]:
    """The LocalQueues that admit these objects."""
    queue_names: dict[str, None] = {}
    for item in objects:
        pod = ((item.get("spec") or {}).get("template") or {}).get("metadata") or {}
        for labels in (labels_of(item), pod.get("labels") or {}):
            if item["kind"] in ("Job", "JobSet") and QUEUE_LABEL in labels:
                queue_names[labels[QUEUE_LABEL]] = None
    return list(queue_names)


def needed(objects: Sequence[Mapping[str, Any]]) -> list[Extension]:
    """What must be installed for these objects."""
    kinds = {kind_of(item) for item in objects}
    if queues(objects):
        kinds.add(KUEUE.kind)
    return [extension for extension in EXTENSIONS if extension.kind in kinds]


def extra_rights(objects: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The kinds among `needed_rights.EXTENSION_RULES` that these objects need."""
    board = (TENSORBOARD,) if any(item["kind"] == TENSORBOARD for item in objects) else ()
    return (*(extension.kind for extension in needed(objects)), *board)


def queue_missing(client: Client, namespace: str, queue: str) -> bool | None:
    """Whether there is no such LocalQueue; None where we may not look."""
    try:
        return client.get("LocalQueue", namespace, queue) is None
    except ApiError as error:
        if error.no_right:
            return None
        raise


def no_queue(namespace: str, queue: str) -> str:
    """What to say where there is no such LocalQueue."""
    return f"there is no LocalQueue {queue} in namespace {namespace}"


NO_QUEUE_ADVICE: Final = "`kubectl get localqueues` lists those there are; name one in spec.scheduling.queue."


def check_requirements(client: Client, objects: Sequence[Mapping[str, Any]]) -> None:
    """Raises BackendError where something is not installed that the objects need, or a queue is not there."""
    wanted = needed(objects)
    for extension, there in zip(
        wanted, together([partial(client.knows, each.kind) for each in wanted]), strict=True
    ):
        if not there:
            raise BackendError(f"{extension.missing}, which {extension.field} asks for", extension.advice)
    namespace = objects[0]["metadata"]["namespace"]
    for queue in queues(objects):
        if queue_missing(client, namespace, queue):
            raise BackendError(f"{no_queue(namespace, queue)}, to admit the run", NO_QUEUE_ADVICE)
