"""Tests against a real Kubernetes API server.

One is started from the binaries in KUBEBUILDER_ASSETS; LAUNCHER_TEST_KUBECONFIG names an existing cluster
instead. Where there is neither, these tests are skipped and say so.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
import yaml
from kubernetes import client, config

from benchmarks.control_plane import UnavailableError, control_plane

if TYPE_CHECKING:
    from launcher.backends.kubernetes.backend import KubernetesBackend
    from tests.api.kubelet import Kubelet
    from tests.api.runs import Follower

ROOT = Path(__file__).parent.parent.parent
RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
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


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """The API server of the whole test run."""
    if existing := os.environ.get("LAUNCHER_TEST_KUBECONFIG"):
        yield Api(Path(existing))
        return
    try:
        with control_plane(tmp_path_factory.mktemp("control-plane")) as started:
            yield Api(started.kubeconfig)
    except UnavailableError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def oldest_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """An API server that behaves as the oldest supported version."""
    try:
        with control_plane(tmp_path_factory.mktemp("oldest-control-plane"), "1.33") as started:
            yield Api(started.kubeconfig)
    except UnavailableError as reason:
        pytest.skip(str(reason))


@contextmanager
def restricted_namespace(api: Api) -> Iterator[str]:
    """A namespace that enforces Pod Security "restricted", with a service account; deleted at the end."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    item = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": RESTRICTED}}
    made = api.request("POST", "api/v1/namespaces", item)
    assert made.status == 201, made.body
    account = f"api/v1/namespaces/{name}/serviceaccounts/default"
    assert wait_for(lambda: api.request("GET", account).status == 200)
    yield name
    api.request("DELETE", f"api/v1/namespaces/{name}")


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    """See `restricted_namespace`."""
    with restricted_namespace(api) as name:
        yield name


CRDS = Path(os.environ.get("LAUNCHER_TEST_CRDS") or ROOT.parent / "shared" / "crds")
"""The folder of other projects' CustomResourceDefinitions, one in each file."""


@contextmanager
def installed(api: Api, *files: str | Path) -> Iterator[None]:
    """Installs the kinds that these files define, until the end; a name is another project's. Skips the test
    where one file is missing.
    """
    paths = [CRDS / f"{file}.yaml" if isinstance(file, str) else file for file in files]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        pytest.skip(f"no {missing[0].name} in {missing[0].parent} (LAUNCHER_TEST_CRDS)")
    definitions = [yaml.safe_load(path.read_text()) for path in paths]
    path = "apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    query = {"fieldManager": "tests", "force": "true"}
    for item in definitions:
        name = item["metadata"]["name"]
        answer = api.patch(f"{path}/{name}", item, "application/apply-patch+yaml", **query)
        assert answer.status in (200, 201), answer.body
    try:
        for item in definitions:
            group, names = item["spec"]["group"], item["spec"]["names"]
            for version in item["spec"]["versions"]:
                assert wait_for(partial(_served, api, f"apis/{group}/{version['name']}", names["plural"]))
        yield
    finally:
        for item in definitions:
            api.request("DELETE", f"{path}/{item['metadata']['name']}")
        for item in definitions:
            assert wait_for(partial(_gone, api, f"{path}/{item['metadata']['name']}"))


def _gone(api: Api, path: str) -> bool:
    return api.request("GET", path).status == 404


def _served(api: Api, path: str, plural: str) -> bool:
    answer = api.request("GET", path)
    return answer.status == 200 and plural in [each["name"] for each in answer.body["resources"]]


@pytest.fixture
def backend(api: Api) -> KubernetesBackend:
    """A backend with the administrator's rights."""
    from tests.api.runs import backend_for

    return backend_for(api)


@pytest.fixture
def kubelet(api: Api, namespace: str) -> Kubelet:
    """A kubelet for the test's own namespace. Skips the test where the cluster has a real one."""
    from tests.api.kubelet import Kubelet
    from tests.api.runs import skip_beside_a_kubelet

    skip_beside_a_kubelet()
    return Kubelet(api, namespace)


@pytest.fixture
def follower(backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path) -> Follower:
    """A follower of a run that was just submitted."""
    from tests.api.runs import RUN, Follower, plan

    backend.submit(plan(tmp_path, kubelet.namespace), detach=True)
    return Follower(backend.follow(RUN, kubelet.namespace))
