"""Tests against a real Kubernetes API server.

One is started from the binaries in KUBEBUILDER_ASSETS; LAUNCHER_TEST_KUBECONFIG names an existing cluster
instead. Where there is neither, these tests are skipped and say so.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import yaml

from benchmarks.control_plane import UnavailableError, control_plane
from launcher.backends.kubernetes.backend import KubernetesBackend
from tests.api.kubelet import Kubelet
from tests.api.plain_requests import Api, wait_for
from tests.api.runs import RUN, Follower, backend_for, plan, skip_beside_a_kubelet

ROOT = Path(__file__).parent.parent.parent
RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}


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
    return backend_for(api)


@pytest.fixture
def kubelet(api: Api, namespace: str) -> Kubelet:
    """A kubelet for the test's own namespace. Skips the test where the cluster has a real one."""
    skip_beside_a_kubelet()
    return Kubelet(api, namespace)


@pytest.fixture
def follower(backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path) -> Follower:
    """A follower of a run that was just submitted."""
    backend.submit(plan(tmp_path, kubelet.namespace), detach=True)
    return Follower(backend.follow(RUN, kubelet.namespace))
