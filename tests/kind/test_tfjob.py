"""An unchanged TFJob: an image with its own command, of whose tasks only the chief ever ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.api.plain_requests import wait_for
from tests.kind.runs import ROOT, Runs

SCRIPT = ROOT / "tests" / "local" / "scripts" / "click_rate.py"


def claim(storage_class: str) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    # Without the field it is the cluster's default.
    named = {"storageClassName": storage_class} if storage_class else {}
    metadata = {"name": "clicks"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec | named}


def tfjob(image: str) -> dict[str, Any]:
    container = {
        "name": "tensorflow",
        "image": image,
        "command": ["python", "-c", SCRIPT.read_text()],
        "args": ["--model=/model"],
        "resources": {"requests": {"cpu": "100m", "memory": "700Mi"}},
        "volumeMounts": [{"name": "model", "mountPath": "/model"}],
    }
    volumes = [{"name": "model", "persistentVolumeClaim": {"claimName": "clicks"}}]
    template = {"spec": {"containers": [container], "volumes": volumes}}
    replicas = {"Chief": 1, "Worker": 2, "PS": 1, "Evaluator": 1}
    specs = {kind: {"replicas": count, "template": template} for kind, count in replicas.items()}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "click-rate"},
        "spec": {"runPolicy": {"cleanPodPolicy": "Running"}, "tfReplicaSpecs": specs},
    }


def test_parameter_servers_train_and_are_gone(runs: Runs, tmp_path: Path) -> None:
    made = runs.api.create(claim(runs.storage_class), runs.namespace)
    assert made.status == 201, made.body
    path = tmp_path / "tfjob.yaml"
    path.write_text(yaml.safe_dump(tfjob(runs.image)))
    done = runs.launcher("submit", str(path), "--namespace", runs.namespace)
    assert done.returncode == 0, done.stdout + done.stderr
    log = runs.of("logs", "--raw", "--role", "chief", run="click-rate").stdout
    assert "a ['chief', 'ps', 'worker'] of a cloud" in log

    def roles() -> list[str]:
        pods = runs.api.list("Pod", runs.namespace)
        return [pod["metadata"]["labels"]["tf-launcher.dev/role"] for pod in pods]

    assert wait_for(lambda: roles() == ["chief"]), roles()
