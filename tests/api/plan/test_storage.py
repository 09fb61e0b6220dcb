"""The nodes on which a real scheduler places the pods of a run whose claim only one node can mount."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.control_plane import UnavailableError, scheduler
from launcher.plan import rendering, topology
from launcher.validation import loader
from tests.api.conftest import restricted_namespace
from tests.api.plain_requests import Api, wait_for

NODES = ("node-a", "node-b", "node-c")
GPU_NODE = "node-with-gpus"
"""Only pods that tolerate its taint may run on it."""
FILE = """\
apiVersion: launcher/v1alpha1
kind: TrainingCluster
metadata: {name: run}
spec:
  strategy: MultiWorkerMirrored
  program: {entrypoint: a:B}
  modelDir: /model
  storage: {accessModes: [ReadWriteOnce]}
  worker: {replicas: 2}
  evaluator: {}
  template: {resources: {cpu: 1, memory: 1Gi}}
"""


@pytest.fixture(scope="module")
def nodes(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Starts the scheduler, with three nodes and one with GPUs, each with room for four pods."""
    if os.environ.get("LAUNCHER_TEST_KUBECONFIG"):
        pytest.skip("the scheduler of an existing cluster is its own")
    size = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    ready = {"type": "Ready", "status": "True"}
    try:
        with scheduler(tmp_path_factory.mktemp("scheduler"), api.kubeconfig):
            for name in (*NODES, GPU_NODE):
                taints: list[Any] = [{"key": "gpu", "effect": "NoSchedule"}] if name == GPU_NODE else []
                item: dict[str, Any] = {
                    "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}
                }
                made = api.request("POST", "api/v1/nodes", item)
                assert made.status == 201, made.body
                # New nodes have a taint until a node controller has seen them.
                item = {**made.body, "spec": {"taints": taints}}
                item = api.request("PUT", f"api/v1/nodes/{name}", item).body
                status = {"capacity": size, "allocatable": size, "conditions": [ready]}
                answer = api.request("PUT", f"api/v1/nodes/{name}/status", {**item, "status": status})
                assert answer.status == 200, answer.body
            yield
    except UnavailableError as reason:
        pytest.skip(str(reason))
    finally:
        for name in (*NODES, GPU_NODE):
            api.request("DELETE", f"api/v1/nodes/{name}")


def submit(api: Api, namespace: str, path: Path, *overrides: str, first: str = "Job") -> None:
    path.write_text(FILE)
    (loaded,) = loader.load(str(path), [*overrides, f"metadata.namespace={namespace}"])
    for item in sorted(
        rendering.render(topology.build(loaded.cluster)), key=lambda item: bool(item["kind"] != first)
    ):
        made = api.create(item, namespace)
        assert made.status == 201, made.body
        if item["kind"] == "PersistentVolumeClaim":
            bind(api, made.body)


def bind(api: Api, claim: dict[str, Any]) -> None:
    """Binds the claim, as a provisioner would."""
    metadata, spec = claim["metadata"], claim["spec"]
    name = f"volume-of-{metadata['namespace']}"
    reference = {key: metadata[key] for key in ("name", "namespace", "uid")}
    volume = {
        "metadata": {"name": name},
        "spec": {
            "capacity": spec["resources"]["requests"],
            "accessModes": spec["accessModes"],
            "nfs": {"server": "nfs.example.com", "path": "/"},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **reference},
        },
    }
    assert api.request("POST", "api/v1/persistentvolumes", volume).status == 201
    path = f"api/v1/namespaces/{metadata['namespace']}/persistentvolumeclaims/{metadata['name']}"
    metadata["annotations"]["pv.kubernetes.io/bind-completed"] = "yes"
    bound = api.request("PUT", path, {**claim, "spec": {**spec, "volumeName": name}})
    assert bound.status == 200, bound.body
    answer = api.request("PUT", f"{path}/status", {**bound.body, "status": {"phase": "Bound"}})
    assert answer.status == 200, answer.body


def placed(api: Api, namespace: str, count: int) -> dict[str, str]:
    """Waits until all pods have a node, and returns each pod's."""

    def found() -> dict[str, str]:
        pods = api.list("Pod", namespace)
        places = {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in pods}
        return places if len(places) == count and all(places.values()) else {}

    places: dict[str, str] = wait_for(found)
    assert places, [
        (pod["metadata"]["name"], pod["status"].get("conditions")) for pod in api.list("Pod", namespace)
    ]
    return places


@pytest.mark.usefixtures("nodes")
def test_pods_that_share_a_claim_of_one_node_are_on_one_node(
    api: Api, namespace: str, tmp_path: Path
) -> None:
    """The first pod has no peer to join, and is scheduled nevertheless."""
    submit(api, namespace, tmp_path / "cluster.yaml")
    assert len(set(placed(api, namespace, 3).values())) == 1


@pytest.mark.usefixtures("nodes")
def test_others_spread(api: Api, namespace: str, tmp_path: Path) -> None:
    submit(api, namespace, tmp_path / "cluster.yaml", "spec.storage.accessModes=[ReadWriteMany]")
    assert len(set(placed(api, namespace, 3).values())) == 3


@pytest.mark.usefixtures("nodes")
def test_a_run_of_the_same_name_elsewhere_is_not_joined(api: Api, namespace: str, tmp_path: Path) -> None:
    submit(api, namespace, tmp_path / "cluster.yaml")
    (there,) = set(placed(api, namespace, 3).values())
    with restricted_namespace(api) as other:
        submit(api, other, tmp_path / "cluster.yaml")
        # The first node has room for one more pod, but not for three.
        (here,) = set(placed(api, other, 3).values())
    assert here != there


@pytest.mark.usefixtures("nodes")
def test_a_tensorboard_waits_for_the_training_to_choose_the_node(
    api: Api, namespace: str, tmp_path: Path
) -> None:
    """A restarted task then stays on TensorBoard's node."""
    overrides = (
        "spec.tensorboard={}",
        "spec.evaluator=null",
        "spec.runPolicy.suspend=true",
        "spec.worker.tolerations=[{key: gpu, operator: Exists}]",
        f"spec.worker.nodeSelector={{kubernetes.io/hostname: {GPU_NODE}}}",
    )
    submit(api, namespace, tmp_path / "cluster.yaml", *overrides, first="Deployment")
    (board,) = wait_for(lambda: api.list("Pod", namespace))
    named = f"api/v1/namespaces/{namespace}/pods/{board['metadata']['name']}"
    assert wait_for(lambda: api.request("GET", named).body["status"].get("conditions"))
    assert "nodeName" not in api.request("GET", named).body["spec"]

    job = f"apis/batch/v1/namespaces/{namespace}/jobs/run-worker"
    resumed = api.patch(job, {"spec": {"suspend": False}}, "application/merge-patch+json")
    assert resumed.status == 200
    assert set(placed(api, namespace, 3).values()) == {GPU_NODE}
