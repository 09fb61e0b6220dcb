"""A run's TensorBoard on a real API server: its Deployment, and the port-forward to its pod."""

from __future__ import annotations

import json
import os
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.kubernetes import tensorboard
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.backends.kubernetes.preflight import needed_rights
from launcher.errors import BackendError, ConflictError
from tests.api.kubelet import STARTED, Kubelet, bind, node
from tests.api.plain_requests import Api, wait_for
from tests.api.runs import RUN, plan
from tests.api.users import user

LONG = b"a page of TensorBoard's " * 100_000
ASKED = ("spec.tensorboard={}", "spec.storage.accessModes=[ReadWriteMany]")


@contextmanager
def web_server() -> Iterator[int]:
    """The port of a server that returns LONG, and returns what is posted to it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(LONG)

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers["Content-Length"])))

        def _answer(self, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def board_pods(api: Api, namespace: str) -> list[dict[str, Any]]:
    return [
        pod
        for pod in api.list("Pod", namespace)
        if pod["metadata"]["labels"].get("tf-launcher.dev/tensorboard") == RUN
        and "deletionTimestamp" not in pod["metadata"]
    ]


def start(api: Api, namespace: str, name: str) -> dict[str, Any]:
    """Sets its pod to running, on the node."""
    pod: dict[str, Any] = wait_for(lambda: board_pods(api, namespace))[0]
    bind(api, pod, name)
    path = f"api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
    current_pod = api.request("GET", path).body
    ready = {"type": "Ready", "status": "True"}
    running = {
        "name": "tensorboard",
        "image": "image",
        "imageID": "image",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": STARTED}},
    }
    current_pod["status"] |= {"phase": "Running", "conditions": [ready], "containerStatuses": [running]}
    assert api.request("PUT", f"{path}/status", current_pod).status == 200
    return pod


def fetch(url: str, data: bytes | None = None) -> bytes:
    with urllib.request.urlopen(url, data, timeout=30) as answer:
        content: bytes = answer.read()
    return content


def test_a_tunnel_to_its_pod(api: Api, backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path) -> None:
    namespace, name = kubelet.namespace, f"node-{kubelet.namespace}"
    # The namespace enforces "restricted", which would warn about the Deployment and refuse its pod.
    assert "warning" not in backend.submit(plan(tmp_path, namespace, *ASKED), detach=True)
    with web_server() as port, node(api, tmp_path, name, forwards=port):
        pod = start(api, namespace, name)
        with backend.tensorboard(RUN, namespace) as tunnel:
            assert fetch(tunnel.url) == LONG
            with ThreadPoolExecutor(8) as pool:
                texts = [f"{number} ".encode() * 50_000 for number in range(8)]
                assert list(pool.map(lambda text: fetch(tunnel.url, text), texts)) == texts
            # Another pod replaces it, and the same address leads to that pod.
            gone = pod["metadata"]["name"]
            path = f"api/v1/namespaces/{namespace}/pods/{gone}"
            assert api.request("DELETE", path, gracePeriodSeconds="0").status == 200
            assert wait_for(lambda: [pod["metadata"]["name"] for pod in board_pods(api, namespace)] != [gone])
            start(api, namespace, name)
            assert wait_for(lambda: _answers(tunnel.url))
        with pytest.raises(OSError, match="refused"):
            fetch(tunnel.url)
        # This is the code path for unusual kubeconfigs, here two files.
        (tmp_path / "more").write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "clusters": []}))
        unusual = KubernetesBackend(f"{api.kubeconfig}{os.pathsep}{tmp_path / 'more'}")
        with unusual.tensorboard(RUN, namespace) as tunnel:
            assert fetch(tunnel.url) == LONG
        about = f"Deployment {RUN}-tensorboard"  # its controller reports in its own time
        assert wait_for(
            lambda: about in {event.about for event in backend.events(RUN, namespace, follow=False)}
        )


def _answers(url: str) -> bool:
    try:
        return fetch(url) == LONG
    except OSError:
        return False


def test_it_is_the_runs_own_and_none_of_its_tasks(
    api: Api, backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    namespace = kubelet.namespace
    backend.submit(plan(tmp_path, namespace, *ASKED, "spec.evaluator=null"), detach=True)
    assert wait_for(lambda: board_pods(api, namespace))
    assert backend.places(RUN, namespace)["tensorboard"].startswith(
        f"python -m launcher tensorboard {RUN} -n"
    )
    assert {role.role for role in backend.status(RUN, namespace).roles} == {"chief", "worker", "ps"}
    (deployment,) = api.list("Deployment", namespace)
    (owner,) = deployment["metadata"]["ownerReferences"]
    assert owner["name"] == f"{RUN}-chief"

    for role, count in (("chief", 1), ("worker", 2), ("ps", 1)):
        for pod in kubelet.start(role, count):
            kubelet.end(pod, 0)
    assert list(backend.follow(RUN, namespace))[-1].status.phase == "Succeeded"
    assert api.list("Deployment", namespace), "it stays for whoever wants to see how the run went"
    backend.delete(RUN, namespace)
    assert not api.list("Deployment", namespace)
    assert wait_for(lambda: not board_pods(api, namespace))


def test_why_it_is_not_up(
    api: Api,
    backend: KubernetesBackend,
    kubelet: Kubelet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tensorboard, "_READY_SECONDS", 0.0)
    namespace = kubelet.namespace
    backend.submit(plan(tmp_path, namespace, *ASKED), detach=True)
    (pod,) = wait_for(lambda: board_pods(api, namespace))
    path = f"api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
    current_pod = api.request("GET", path).body
    why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node is free"}
    current_pod["status"] |= {"conditions": [why]}
    assert api.request("PUT", f"{path}/status", current_pod).status == 200
    with pytest.raises(
        BackendError, match="TensorBoard of run mnist is not up: Unschedulable: no node is free"
    ):
        backend.tensorboard(RUN, namespace)


def test_one_that_fails_again_is_not_waited_for(
    api: Api, backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    """As a pod of an image without TensorBoard does."""
    namespace = kubelet.namespace
    backend.submit(plan(tmp_path, namespace, *ASKED), detach=True)
    (pod,) = wait_for(lambda: board_pods(api, namespace))
    name = pod["metadata"]["name"]
    path = f"api/v1/namespaces/{namespace}/pods/{name}"
    current_pod = api.request("GET", path).body
    ended = {"exitCode": 1, "reason": "Error", "startedAt": STARTED, "finishedAt": STARTED}
    back_off = {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}
    failed = {
        "name": "tensorboard",
        "image": "image",
        "imageID": "image",
        "ready": False,
        "restartCount": 1,
        "state": {"waiting": back_off},
        "lastState": {"terminated": ended},
    }
    current_pod["status"] |= {"phase": "Running", "containerStatuses": [failed]}
    assert api.request("PUT", f"{path}/status", current_pod).status == 200
    with pytest.raises(BackendError, match="mnist is not up: CrashLoopBackOff: back-off 10s") as refused:
        backend.tensorboard(RUN, namespace)
    assert f"`kubectl logs {name} -n {namespace} --previous`" in refused.value.hint


def test_a_run_without_one(backend: KubernetesBackend, namespace: str, tmp_path: Path) -> None:
    backend.submit(plan(tmp_path, namespace), detach=True)
    with pytest.raises(ConflictError, match="run mnist has no TensorBoard"):
        backend.tensorboard(RUN, namespace)
    assert "tensorboard" not in backend.places(RUN, namespace)


def person(api: Api, namespace: str, rules: list[dict[str, Any]], directory: Path) -> KubernetesBackend:
    """Returns the backend of a user with these rights."""
    return KubernetesBackend(str(user(api, namespace, rules, directory)))


def test_who_may_not_open_a_tunnel_is_told(
    api: Api, backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    namespace, name = kubelet.namespace, f"node-{kubelet.namespace}"
    backend.submit(plan(tmp_path, namespace, *ASKED), detach=True)
    with node(api, tmp_path, name):
        start(api, namespace, name)
        rules = [
            rule
            for rule in needed_rights.rules([needed_rights.TENSORBOARD])
            if rule is not needed_rights.TUNNEL
        ]
        other = person(api, namespace, rules, tmp_path)
        with pytest.raises(BackendError, match=r"may not create pods/portforward in namespace"):
            other.tensorboard(RUN, namespace)


def test_who_may_make_no_deployment_has_runs_without(api: Api, namespace: str, tmp_path: Path) -> None:
    other = person(api, namespace, needed_rights.RULES, tmp_path)
    with pytest.raises(BackendError, match=r"may not patch deployments.apps in namespace"):
        other.submit(plan(tmp_path, namespace, *ASKED), detach=True)
    assert not api.list("Job", namespace)
    other.submit(plan(tmp_path, namespace, "spec.storage.reclaimPolicy=Retain"), detach=True)
    findings = {finding.subject: finding for finding in other.examine(namespace)}
    assert findings["right to deployments"].verdict == "warning"
    assert "a run with spec.tensorboard is refused" in findings["right to deployments"].advice
    assert (
        findings["right to pods/portforward"].advice
        == "Without it, `tensorboard`, `stacks` and `profile` open no tunnel."
    )
    plain = plan(tmp_path, namespace).objects
    assert not any("deployments" in finding.subject for finding in other.examine(namespace, plain))
    asking = plan(tmp_path, namespace, *ASKED).objects
    findings = {finding.subject: finding for finding in other.examine(namespace, asking)}
    assert findings["right to deployments"].verdict == "missing"
    other.delete(RUN, namespace)
