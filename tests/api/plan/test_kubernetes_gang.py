"""`gang: Kubernetes` with the scheduler of Kubernetes 1.36 itself: of two runs that do not fit together, one
starts whole, and the other not at all.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.control_plane import GANG_FEATURES, UnavailableError, control_plane, scheduler
from launcher.backends.kubernetes.backend import KubernetesBackend
from tests.api.conftest import restricted_namespace
from tests.api.plain_requests import Api, wait_for
from tests.api.runs import backend_for, plan

PROTECTION = ["podgroup-protection-controller"]
"""A PodGroup goes only when its pods have ended, which this controller sees."""
GANG = ["spec.scheduling={gang: Kubernetes}", "spec.template.resources={cpu: 1, memory: 1Gi}"]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A cluster with the feature gates on."""
    try:
        folder = tmp_path_factory.mktemp("gang")
        with (
            control_plane(folder, more=PROTECTION, gang=True) as started,
            scheduler(folder, started.kubeconfig, GANG_FEATURES),
        ):
            yield Api(started.kubeconfig)
    except UnavailableError as reason:
        pytest.skip(str(reason))


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    with restricted_namespace(api) as name:
        yield name


def make_node(api: Api, cpu: int) -> None:
    """A node without a kubelet, which has room for so many tasks."""
    room = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "one"}}
    assert api.request("POST", "api/v1/nodes", node).status == 201
    status = {"status": {"capacity": room, "allocatable": room, "conditions": [ready]}}
    path = "api/v1/nodes/one"
    assert api.patch(f"{path}/status", status, "application/merge-patch+json").status == 200
    # Nobody else removes it: the node controller does not run.
    taints = {"spec": {"taints": None}}
    assert api.patch(path, taints, "application/merge-patch+json").status == 200


def placed(api: Api, namespace: str, run: str) -> list[bool]:
    """Whether each of the run's pods has a node."""
    pods = [
        pod
        for pod in api.list("Pod", namespace)
        if pod["metadata"]["labels"].get("tf-launcher.dev/run") == run
    ]
    return [bool(pod["spec"].get("nodeName")) for pod in pods]


def has_pods(api: Api, namespace: str, run: str, count: int) -> bool:
    return len(placed(api, namespace, run)) == count


def deleted(api: Api, backend: KubernetesBackend, namespace: str, run: str) -> None:
    """Deletes the run; its pods end at once, as no kubelet ends them."""
    with ThreadPoolExecutor() as thread:
        ended = thread.submit(backend.delete, run, namespace)
        pods = f"api/v1/namespaces/{namespace}/pods"
        while not ended.done():
            for pod in api.list("Pod", namespace):
                if "deletionTimestamp" in pod["metadata"]:
                    api.request("DELETE", f"{pods}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
            time.sleep(0.2)
        ended.result()


def test_one_of_two_starts_whole_and_the_other_when_there_is_room(
    api: Api, namespace: str, tmp_path: Path
) -> None:
    backend = backend_for(api)
    fields = [
        *GANG,
        "spec.worker.replicas=2",
        "spec.ps.replicas=1",
        "spec.evaluator=null",
        "spec.modelDir=null",
    ]
    tasks = 4  # with the chief
    make_node(api, cpu=tasks + 2)
    for name in ("first", "second"):
        backend.submit(plan(tmp_path, namespace, *fields, f"metadata.name={name}"), detach=True)
        assert wait_for(partial(has_pods, api, namespace, name, tasks))
    assert wait_for(lambda: all(placed(api, namespace, "first"))), placed(api, namespace, "first")
    path = f"apis/scheduling.k8s.io/v1alpha2/namespaces/{namespace}/podgroups"
    groups: list[dict[str, Any]] = api.request("GET", path).body["items"]
    # One worker is enough for the coordinator to begin.
    assert {each["spec"]["schedulingPolicy"]["gang"]["minCount"] for each in groups} == {3}
    assert wait_for(lambda: "PodGroup" in str(api.request("GET", path).body["items"][1].get("status")))
    assert not any(placed(api, namespace, "second")), "there is room for two of its tasks"
    deleted(api, backend, namespace, "first")
    assert wait_for(lambda: len([each for each in placed(api, namespace, "second") if each]) == tasks)
    deleted(api, backend, namespace, "second")
    assert api.request("GET", path).body["items"] == []
