"""The TensorBoard of a run: finds its pod, and opens a tunnel to it."""

from __future__ import annotations

import time
from typing import Final

from launcher.backends.base import PROGRAM
from launcher.backends.kubernetes.api_server.client import Client, Object
from launcher.backends.kubernetes.api_server.port_forward import Tunnel
from launcher.backends.run_facts import submitted
from launcher.errors import BackendError, ConflictError
from launcher.object_names import TENSORBOARD_LABEL
from launcher.plan.tensorboard import PORT
from launcher.status import condition

_READY_SECONDS: Final = 120.0
"""To wait for a pod that starts. Pulling an image may take longer; the message says so."""


def open_tunnel(client: Client, run: str, namespace: str, primary: Object, port: int) -> Tunnel:
    """Opens a tunnel to the run's TensorBoard. Raises ConflictError if the run has none, BackendError if it
    is not ready in time.
    """
    if submitted(primary, "spec", "tensorboard") is None:
        raise ConflictError(
            f"run {run} has no TensorBoard",
            "Submit it with `tensorboard: {}` in its spec; one that is running, too.",
        )
    _wait(client, run, namespace)
    return Tunnel(client, namespace, lambda: _find(client, run, namespace), PORT, port)


def _wait(client: Client, run: str, namespace: str) -> None:
    until = time.monotonic() + _READY_SECONDS
    while not any(map(_ready, pods := _pods(client, run, namespace))):
        if time.monotonic() > until or any(map(_fails_again, pods)):
            raise _not_up(client, run, namespace)
        client.patience.restart()  # the server has answered: it is the pod that is waited for
        time.sleep(1.0)


def _find(client: Client, run: str, namespace: str) -> str:
    """The name of the pod that is ready."""
    for pod in _pods(client, run, namespace):
        if _ready(pod):
            return str(pod["metadata"]["name"])
    raise _not_up(client, run, namespace)


def _pods(client: Client, run: str, namespace: str) -> list[Object]:
    pods, _ = client.list("Pod", namespace, f"{TENSORBOARD_LABEL}={run}")
    return [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]


def _ready(pod: Object) -> bool:
    return condition(pod, "Ready") is not None


def _fails_again(pod: Object) -> bool:
    """Whether it has failed, and has failed again when it was started once more: an image without TensorBoard
    would be waited for in vain.
    """
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        states = [container.get("state") or {}, container.get("lastState") or {}]
        ended = [state["terminated"] for state in states if state.get("terminated")]
        if container.get("restartCount") and any(each.get("exitCode") for each in ended):
            return True
    return False


def _not_up(client: Client, run: str, namespace: str) -> BackendError:
    pods = _pods(client, run, namespace)
    why = reason(pods[0]) if pods else "it has no pod"
    space = client.connection.options(namespace)
    hint = f"Try again in a while; `{PROGRAM} events {run}{space}` tells more."
    if pods and _fails_again(pods[0]):
        pod = pods[0]["metadata"]["name"]
        shows = f"`kubectl logs {pod} -n {namespace} --previous`"
        hint = f"Its image must have tensorboard; {shows} shows what it prints."
    return BackendError(f"the TensorBoard of run {run} is not up: {why}", hint)


def reason(pod: Object) -> str:
    """Why the pod does not run, as the cluster says it."""
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        for state in ("waiting", "terminated"):
            details = (container.get("state") or {}).get(state)
            if details and details.get("reason"):
                return ": ".join(filter(None, (details["reason"], details.get("message"))))
    for each in status.get("conditions") or ():
        if each["status"] != "True" and each.get("message"):
            return f"{each.get('reason') or each['type']}: {each['message']}"
    return str(status.get("phase") or "Pending")
