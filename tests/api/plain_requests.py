"""Requests to an API server without any code of the launcher."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from kubernetes import client, config

PATHS = {
    "ConfigMap": "api/v1/namespaces/{}/configmaps",
    "Deployment": "apis/apps/v1/namespaces/{}/deployments",
    "Event": "api/v1/namespaces/{}/events",
    "Job": "apis/batch/v1/namespaces/{}/jobs",
    "NetworkPolicy": "apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "PersistentVolumeClaim": "api/v1/namespaces/{}/persistentvolumeclaims",
    "Pod": "api/v1/namespaces/{}/pods",
    "Service": "api/v1/namespaces/{}/services",
}


@dataclass(frozen=True)
class Response:
    """A response of the API server; `warnings` are those that kubectl would print."""

    status: int
    body: dict[str, Any]
    warnings: str


class Api:
    """Sends plain requests to an API server, without any code of the launcher."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self._client = config.new_client_from_config(str(kubeconfig))

    def request(
        self, method: str, path: str, body: Any = None, *, accept: str = "application/json", **query: str
    ) -> Response:
        """Sends one request; an error is a response like any other."""
        return self._send(method, path, body, "application/json", query, accept)

    def patch(self, path: str, body: Any, content_type: str, **query: str) -> Response:
        """Sends a patch of this content type."""
        return self._send("PATCH", path, body, content_type, query)

    def _send(
        self,
        method: str,
        path: str,
        body: Any,
        content_type: str,
        query: dict[str, str],
        accept: str = "application/json",
    ) -> Response:
        headers = {"Accept": accept, "Content-Type": content_type}
        self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        url = f"{self._client.configuration.host}/{path}?{urlencode(query)}"
        answer = self._client.call_api(method, url, headers, body, _request_timeout=30)
        text = answer.read()
        # The server answers in plain text for an API that it does not know.
        body = json.loads(text) if text.startswith(b"{") else {"message": text.decode()}
        return Response(answer.status, body, answer.headers.get("Warning", ""))

    def create(self, item: dict[str, Any], namespace: str, **query: str) -> Response:
        """Creates the object in the namespace, whatever namespace it has, with strict field validation."""
        item = {**item, "metadata": {**item["metadata"], "namespace": namespace}}
        path = PATHS[item["kind"]].format(namespace)
        return self.request("POST", path, item, fieldValidation="Strict", **query)

    def list(self, kind: str, namespace: str) -> list[dict[str, Any]]:
        """Returns all objects of the kind in the namespace."""
        answer = self.request("GET", PATHS[kind].format(namespace))
        assert answer.status == 200, answer.body
        items: list[dict[str, Any]] = answer.body["items"]
        return items

    def log(self, namespace: str, pod: str) -> str:
        """Returns what the pod has printed; nothing where it has not started."""
        try:
            text: str = client.CoreV1Api(self._client).read_namespaced_pod_log(pod, namespace)
        except client.ApiException:
            return ""
        return text


def wait_for(condition: Callable[[], Any], seconds: float = 30) -> Any:
    """Returns the first true value of the condition; its last value when none is true in time."""
    deadline = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return value
