"""A cluster whose admission webhooks change a run's objects, or refuse them."""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.errors import BackendError
from tests.api.plain_requests import Api, wait_for
from tests.api.runs import plan

REGISTRATION = "apis/admissionregistration.k8s.io/v1"
JOBS = {
    "apiGroups": ["batch"],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["jobs"],
}
MIRRORED = "mirror.example.com/tf-launcher-worker:dev"


class Webhook(BaseHTTPRequestHandler):
    """Replaces the registry of every image, and refuses Jobs called `...-ps`."""

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = review["request"]
        patch = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": MIRRORED}]
        if self.path.startswith("/mutate"):
            decision: dict[str, Any] = {
                "allowed": True,
                "patchType": "JSONPatch",
                "patch": base64.b64encode(json.dumps(patch).encode()).decode(),
            }
        else:
            allowed = not request["name"].endswith("-ps")
            decision = {"allowed": allowed, "status": {"message": "parameter servers cost too much"}}
        answer = {**review, "response": {"uid": request["uid"], **decision}}
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def webhook(api: Api, namespace: str, directory: Path, kind: str, path: str) -> Iterator[None]:
    """Registers the webhook for the namespace's Jobs; `kind` is Mutating or Validating."""
    certificate, key = directory / "webhook.crt", directory / "webhook.key"
    names = ["-subj", "/CN=webhook", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *names, *files]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Webhook) as server:
        server.daemon_threads = True
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        configuration = {
            "metadata": {"name": namespace},
            "webhooks": [
                {
                    "name": "rules.example.com",
                    "admissionReviewVersions": ["v1"],
                    "sideEffects": "None",
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                    "rules": [JOBS],
                    "clientConfig": {
                        "url": f"https://127.0.0.1:{server.server_port}{path}",
                        "caBundle": base64.b64encode(certificate.read_bytes()).decode(),
                    },
                }
            ],
        }
        plural = f"{REGISTRATION}/{kind.lower()}webhookconfigurations"
        made = api.request("POST", plural, configuration)
        assert made.status == 201, made.body
        try:
            yield
        finally:
            api.request("DELETE", f"{plural}/{namespace}")
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def _reachable() -> None:
    if "LAUNCHER_TEST_KUBECONFIG" in os.environ:
        pytest.skip("the API server of LAUNCHER_TEST_KUBECONFIG does not reach this test's webhook")


def refused_or_changed(backend: KubernetesBackend, directory: Path, namespace: str) -> bool:
    """Returns whether the webhook works: the API server knows a registration only after a moment."""
    try:
        return any("note: " in line for line in backend.dry_run(plan(directory, namespace)))
    except BackendError:
        return True


def test_what_the_cluster_changes_is_said(
    api: Api, backend: KubernetesBackend, namespace: str, tmp_path: Path
) -> None:
    with webhook(api, namespace, tmp_path, "Mutating", "/mutate"):
        assert wait_for(lambda: refused_or_changed(backend, tmp_path, namespace))
        message = backend.submit(plan(tmp_path, namespace), detach=True)
        image = f'spec.template.spec.containers[tensorflow].image: "tf-launcher-worker:dev" -> "{MIRRORED}"'
        assert f"note: the cluster changes Job mnist-chief:\n  {image}" in message
        jobs = api.list("Job", namespace)
        assert {job["spec"]["template"]["spec"]["containers"][0]["image"] for job in jobs} == {MIRRORED}
        # The webhook changes each submission alike, which is no difference between two.
        again = backend.submit(plan(tmp_path, namespace), detach=True)
        assert again == "run mnist is running already, and is what was submitted"


def test_what_a_webhook_refuses(api: Api, backend: KubernetesBackend, namespace: str, tmp_path: Path) -> None:
    with webhook(api, namespace, tmp_path, "Validating", "/validate"):
        assert wait_for(lambda: refused_or_changed(backend, tmp_path, namespace))
        with pytest.raises(BackendError) as refused:
            backend.submit(plan(tmp_path, namespace), detach=True)
    assert refused.value.message.startswith(
        f"the cluster's admission control refused to patch jobs.batch mnist-ps in namespace {namespace}: "
    )
    assert "parameter servers cost too much" in refused.value.message
    assert "ask the cluster's administrator" in refused.value.hint
    assert api.list("Job", namespace) == []
    assert api.list("ConfigMap", namespace)[0]["metadata"]["name"] == "kube-root-ca.crt"


def test_what_a_policy_refuses(api: Api, backend: KubernetesBackend, namespace: str, tmp_path: Path) -> None:
    made = [
        api.request(
            "POST",
            f"{REGISTRATION}/validatingadmissionpolicies",
            {
                "metadata": {"name": namespace},
                "spec": {
                    "matchConstraints": {"resourceRules": [JOBS]},
                    "validations": [{"expression": "object.spec.completions < 2", "message": "one pod each"}],
                },
            },
        ),
        api.request(
            "POST",
            f"{REGISTRATION}/validatingadmissionpolicybindings",
            {
                "metadata": {"name": namespace},
                "spec": {
                    "policyName": namespace,
                    "validationActions": ["Deny"],
                    "matchResources": {
                        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
                    },
                },
            },
        ),
    ]
    assert [answer.status for answer in made] == [201, 201], made
    try:
        assert wait_for(lambda: refused_or_changed(backend, tmp_path, namespace))
        with pytest.raises(BackendError, match=r"admission control refused .* mnist-worker .* one pod each"):
            backend.submit(plan(tmp_path, namespace), detach=True)
    finally:
        api.request("DELETE", f"{REGISTRATION}/validatingadmissionpolicybindings/{namespace}")
        api.request("DELETE", f"{REGISTRATION}/validatingadmissionpolicies/{namespace}")
    assert api.list("Job", namespace) == []
