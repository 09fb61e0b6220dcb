"""Plays the kubelet for a control plane without one: it sets the status of pods, and serves their logs."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

from tests.api import portforward
from tests.api.plain_requests import Api, wait_for

FINISHED = "2026-01-01T00:00:09Z"
STARTED = "2026-01-01T00:00:05Z"


class Kubelet:
    """Sets the status of one namespace's pods."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.namespace = namespace
        self._api = api

    def pods(self, role: str | None = None) -> list[dict[str, Any]]:
        """Returns the pods of all tasks, or of a role, that are not being deleted, by name of host, oldest
        first.
        """
        pods = [
            pod
            for pod in self._api.list("Pod", self.namespace)
            if (its := pod["metadata"]["labels"].get("tf-launcher.dev/role"))
            and role in (None, its)
            and "deletionTimestamp" not in pod["metadata"]
        ]
        return sorted(pods, key=lambda pod: (pod["spec"]["hostname"], pod["metadata"]["creationTimestamp"]))

    def pending(self, role: str, count: int = 1) -> list[dict[str, Any]]:
        """Waits for `count` pods of a role that do not run yet, and returns them."""

        def found() -> list[dict[str, Any]]:
            pods = [pod for pod in self.pods(role) if pod["status"]["phase"] == "Pending"]
            return pods if len(pods) >= count else []

        pods: list[dict[str, Any]] = wait_for(found)
        assert len(pods) == count, [(pod["metadata"]["name"], pod["status"]) for pod in self.pods()]
        return pods

    def pending_all(self, count: int) -> list[dict[str, Any]]:
        """Waits for `count` pods, and returns them."""
        assert wait_for(lambda: len(self.pods()) == count)
        return self.pods()

    def start(self, role: str, count: int = 1) -> list[dict[str, Any]]:
        """Sets `count` pods of a role to running."""
        pods = self.pending(role, count)
        for pod in pods:
            self.set(pod, "Running", {"running": {"startedAt": STARTED}})
        return pods

    def end(self, pod: dict[str, Any], exit_code: int, reason: str = "", **status: Any) -> None:
        """Sets a pod to ended."""
        words = reason or ("Error" if exit_code else "Completed")
        times = {"startedAt": STARTED, "finishedAt": FINISHED}
        state = {"terminated": {"exitCode": exit_code, "reason": words, **times}}
        self.set(pod, "Failed" if exit_code else "Succeeded", state, **status)

    def finish_deleted(self) -> None:
        """Sets pods that are being deleted to ended, until they are gone."""

        def left() -> list[dict[str, Any]]:
            pods = self._api.list("Pod", self.namespace)
            return [pod for pod in pods if "deletionTimestamp" in pod["metadata"]]

        for pod in left():
            if pod["status"]["phase"] in ("Pending", "Running"):
                self.end(pod, 143)
        assert wait_for(lambda: not left()), left()

    def set(self, pod: dict[str, Any], phase: str, state: dict[str, Any] | None, **status: Any) -> None:
        """Writes a pod's status."""
        path = f"api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}"
        containers = [
            {
                "name": "tensorflow",
                "image": "image",
                "imageID": "image",
                "ready": phase == "Running",
                "restartCount": 0,
                "state": state,
            }
        ]
        ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}

        def write() -> bool:
            answer = self._api.request("GET", path)
            if answer.status == 404:
                return "deletionTimestamp" in pod["metadata"]
            current_pod = answer.body
            conditions = [*status.pop("conditions", ()), ready]
            current_pod["status"] |= {
                "phase": phase,
                "startTime": STARTED,
                "conditions": conditions,
                "containerStatuses": containers if state is not None else [],
                **status,
            }
            answer = self._api.request("PUT", f"{path}/status", current_pod)
            # It may be gone since it was read.
            assert answer.status in (200, 404, 409), answer.body
            return answer.status == 200

        assert wait_for(write)


class Logs:
    """A node whose kubelet serves logs. `write` appends a line, `end` ends a log."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}
        self._ended: set[str] = set()
        self.changed = threading.Condition()

    def write(self, pod: str, *texts: str, at: str = "") -> None:
        """Appends lines, each a second after the one before, or at the time `at`."""
        with self.changed:
            lines = self._lines.setdefault(pod, [])
            for text in texts:
                time = at or f"2026-01-01T00:{len(lines) // 60:02d}:{len(lines) % 60:02d}"
                lines.append(f"{time}.000000000Z {text}\n")
            self.changed.notify_all()

    def end(self, pod: str) -> None:
        """Ends the container's log."""
        with self.changed:
            self._ended.add(pod)
            self.changed.notify_all()

    def read(self, pod: str, query: dict[str, list[str]]) -> Iterator[str]:
        """Reads as a kubelet does: tailLines, sinceTime in whole seconds, sinceSeconds, follow."""
        follow = query.get("follow") == ["true"]
        with self.changed:
            lines = self._lines.get(pod, [])
            position = len(lines) - int(query["tailLines"][0]) if "tailLines" in query else 0
            position = max(0, position)
            since = query["sinceTime"][0][:19] if "sinceTime" in query else ""
            if "sinceSeconds" in query:
                seconds = timedelta(seconds=int(query["sinceSeconds"][0]))
                since = (datetime.now(timezone.utc) - seconds).isoformat()[:19]
            if since:
                position = next((n for n, line in enumerate(lines) if line[:19] >= since), len(lines))
            while True:
                while position < len(self._lines.get(pod, [])):
                    yield self._lines[pod][position]
                    position += 1
                if not follow or pod in self._ended:
                    return
                self.changed.wait(0.5)


@contextmanager
def node(api: Api, directory: Path, name: str, forwards: int = 0) -> Iterator[Logs]:
    """Serves a node of that name until the end. Every port of its pods leads to the port `forwards` of this
    machine.
    """
    certificate, key = directory / "kubelet.crt", directory / "kubelet.key"
    subject = ["-subj", "/CN=kubelet", "-days", "1"]
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            key,
            "-out",
            certificate,
            *subject,
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    logs = Logs()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            url = urlparse(self.path)
            if url.path.startswith("/portForward/"):
                portforward.carry(self, forwards)
                return
            pod = url.path.split("/")[3]
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                for line in logs.read(pod, parse_qs(url.query)):
                    content = line.encode()
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")
            except OSError:
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            with registered(api, name, server.server_port):
                yield logs
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def registered(api: Api, name: str, port: int) -> Iterator[None]:
    """Has a node of that name, whose kubelet is at that port of this machine, until the end."""
    made = api.request("POST", "api/v1/nodes", {"kind": "Node", "metadata": {"name": name}})
    assert made.status == 201, made.body
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    answer = api.request("PUT", f"api/v1/nodes/{name}/status", {**made.body, "status": status})
    assert answer.status == 200, answer.body
    try:
        yield
    finally:
        api.request("DELETE", f"api/v1/nodes/{name}")


def bind(api: Api, pod: dict[str, Any], name: str) -> None:
    """Schedules the pod on the node."""
    metadata = pod["metadata"]
    path = f"api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/binding"
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": metadata["name"]},
        "target": {"kind": "Node", "name": name},
    }
    answer = api.request("POST", path, binding)
    assert answer.status == 201, json.dumps(answer.body)
