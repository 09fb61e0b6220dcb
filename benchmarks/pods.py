"""What may befall a pod of the kubeconfig's cluster: its processes are killed, or it is evicted."""

from __future__ import annotations

from typing import Final

from kubernetes import client, config
from kubernetes.client import ApiException
from kubernetes.stream import stream

_SAY: Final = "print(time.time(), flush=True)"
_KILL_ALL: Final = f"import os, time; {_SAY}; os.kill(-1, 9)"
"""Says when before it kills, since it ends with the container."""
_KILL_TRAINING: Final = (
    "import os, time; pids = [int(name) for name in os.listdir('/proc') if name.isdigit()]; "
    f"os.kill(max(pid for pid in pids if pid < os.getpid()), 9); {_SAY}"
)
"""Says when after it has killed: the process may have done a step before."""


class GoneError(RuntimeError):
    """The pod has ended, or does not answer any more."""


def kill_in_pod(run: str, namespace: str, role: str, index: int, *, in_place: bool) -> float:
    """Kills all processes of the task's container but the first, which then ends too; in place only the
    newest, which trains. Returns when, in seconds since the epoch. Raises GoneError.
    """
    core = _core()
    key = "batch.kubernetes.io/job-completion-index"
    labels = f"tf-launcher.dev/run={run},tf-launcher.dev/role={role},{key}={index}"
    found = core.list_namespaced_pod(namespace, label_selector=labels, field_selector="status.phase=Running")
    names = [pod.metadata.name for pod in found.items if pod.metadata is not None]
    if len(names) != 1:
        raise GoneError(f"{run}-{role}-{index} has {len(names)} pods that run")
    command = ["python", "-c", _KILL_TRAINING if in_place else _KILL_ALL]
    try:
        said = stream(core.connect_get_namespaced_pod_exec, names[0], namespace, command=command, stdout=True)
        return float(said)
    except (ApiException, ValueError) as error:
        raise GoneError(f"{names[0]}: {error}") from error


def evict(namespace: str, pod: str) -> None:
    """Evicts it as the drain of its node does: it has its grace period. Raises GoneError."""
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name=pod, namespace=namespace))
    try:
        _core().create_namespaced_pod_eviction(pod, namespace, eviction)
    except ApiException as error:
        if error.status != 404:
            raise
        raise GoneError(f"{pod}: {error.reason}") from error


def _core() -> client.CoreV1Api:
    config.load_kube_config()
    return client.CoreV1Api()
