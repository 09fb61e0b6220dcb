"""What may befall a pod of the kubeconfig's cluster: its processes are killed, or it is evicted."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from kubernetes import client, config
from kubernetes.client import ApiException
from kubernetes.stream import stream

_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_POLL_SECONDS: Final = 0.1
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
    name = _running(run, namespace, role, index)
    command = ["python", "-c", _KILL_TRAINING if in_place else _KILL_ALL]
    try:
        output = stream(
            _core().connect_get_namespaced_pod_exec, name, namespace, command=command, stdout=True
        )
        return float(output)
    except (ApiException, ValueError) as error:
        raise GoneError(f"{name}: {error}") from error


def delete(run: str, namespace: str, role: str, index: int) -> tuple[float, str]:
    """Deletes the task's pod, which has its grace period. Returns when, in seconds since the epoch, and its
    name. Raises GoneError.
    """
    name = _running(run, namespace, role, index)
    now = time.time()
    try:
        _core().delete_namespaced_pod(name, namespace)
    except ApiException as error:
        raise GoneError(f"{name}: {error.reason}") from error
    return now, name


def labels(run: str, role: str, index: int) -> str:
    """Returns the selector of the task's pods."""
    return f"tf-launcher.dev/run={run},tf-launcher.dev/role={role},{_INDEX}={index}"


@dataclass(frozen=True)
class Replacement:
    """When a task's pod had ended, when its Job had made another one, and when that one's container ran, in
    seconds since the epoch.
    """

    ended: float
    made: float
    ran: float


def replacement(pod: str, namespace: str, selector: str, seconds: float) -> Replacement:
    """Waits until the `pod` of the task is replaced, and the new one's container runs; `selector` selects
    both. Raises GoneError after so many seconds.
    """
    core, ended, made, until = _core(), None, None, time.time() + seconds
    while (now := time.time()) < until:
        pods: Any = core.list_namespaced_pod(namespace, label_selector=selector).items
        there = {each.metadata.name: each.status for each in pods if each.status.phase != "Failed"}
        if pod not in there:
            ended = ended or now
        new = [status for name, status in there.items() if name != pod]
        if new:
            made = made or now
            if any(each.state.running for each in new[0].container_statuses or ()):
                return Replacement(ended or now, made, now)
        time.sleep(_POLL_SECONDS)
    raise GoneError(f"{pod} was not replaced within {seconds:.0f} s")


def evict(namespace: str, pod: str) -> None:
    """Evicts it as the drain of its node does: it has its grace period. Raises GoneError."""
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name=pod, namespace=namespace))
    try:
        _core().create_namespaced_pod_eviction(pod, namespace, eviction)
    except ApiException as error:
        if error.status != 404:
            raise
        raise GoneError(f"{pod}: {error.reason}") from error


def _running(run: str, namespace: str, role: str, index: int) -> str:
    pod_list = _core().list_namespaced_pod(
        namespace, label_selector=labels(run, role, index), field_selector="status.phase=Running"
    )
    names = [str(pod.metadata.name) for pod in pod_list.items if pod.metadata is not None]
    if len(names) != 1:
        raise GoneError(f"{run}-{role}-{index} has {len(names)} pods that run")
    return names[0]


def _core() -> client.CoreV1Api:
    config.load_kube_config()
    return client.CoreV1Api()
