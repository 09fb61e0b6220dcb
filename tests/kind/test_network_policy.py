"""Only the run's own pods reach its TensorFlow servers, which obey any client."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.plain_requests import wait_for
from tests.kind.runs import RUN, Runs

PORT = 2222
CONNECTED, REFUSED = 10, 11
"""Exit codes. They are neither 0 nor 1, because a pod that does not start is no answer."""
CONNECT = f"""
import socket, sys
try:
    socket.create_connection((sys.argv[1], {PORT}), timeout=5)
except OSError:
    sys.exit({REFUSED})
sys.exit({CONNECTED})
"""
LISTEN = f"""
import socket
server = socket.create_server(("", {PORT}))
while True:
    server.accept()[0].close()
"""


def start(runs: Runs, name: str, labels: dict[str, str], *arguments: str) -> None:
    """Starts a pod that runs Python with the arguments."""
    context = {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"name": "python", "image": runs.image, "command": ["python", "-c", *arguments]}
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [{**container, "securityContext": context}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
    made = runs.api.create(pod, runs.namespace)
    assert made.status == 201, made.body


def status(runs: Runs, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = runs.api.request("GET", runs.path("Pod", name)).body["status"]
    return answer


def address(runs: Runs, name: str) -> str:
    """Returns the address of a pod, once it runs."""
    assert wait_for(lambda: status(runs, name)["phase"] == "Running", 60)
    return str(status(runs, name)["podIP"])


def connects(runs: Runs, name: str, labels: dict[str, str], host: str) -> bool:
    """Returns whether a new pod with the labels can open a connection."""
    start(runs, name, labels, CONNECT, host)
    assert wait_for(lambda: status(runs, name)["phase"] == "Failed", 60), status(runs, name)
    code = status(runs, name)["containerStatuses"][0]["state"]["terminated"]["exitCode"]
    assert code in (CONNECTED, REFUSED)
    return bool(code == CONNECTED)


def test_a_pod_outside_the_run_cannot_connect(runs: Runs) -> None:
    # First check that the cluster enforces policies, with one that closes the port of a server that would
    # answer.
    start(runs, "closed", {"app": "closed"}, LISTEN)
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "closed"},
        "spec": {"podSelector": {"matchLabels": {"app": "closed"}}, "policyTypes": ["Ingress"]},
    }
    assert runs.api.create(policy, runs.namespace).status == 201
    runs.submit()
    if connects(runs, "probe", {"app": "probe"}, address(runs, "closed")):
        pytest.skip("this cluster's network enforces no NetworkPolicy: a pod that none may reach was reached")
    runs.trains()
    worker = address(runs, runs.pod("worker", 0))
    assert connects(runs, "inside", {"tf-launcher.dev/run": RUN}, worker)
    assert not connects(runs, "outside", {"tf-launcher.dev/run": "another"}, worker)
