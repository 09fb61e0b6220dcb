"""A TFJob with its own script, as processes of this machine, with real TensorFlow."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher import plan_of_file
from launcher.backends.local.backend import LocalBackend
from launcher.backends.local.store import SupervisorSettings
from launcher.status import Phase
from launcher.validation import loader
from tests.local.machine import Machine, linux_only
from tests.paths import TESTS

SCRIPT = TESTS / "local" / "scripts" / "click_rate.py"
pytestmark = linux_only

SETTINGS = SupervisorSettings(other_image_seconds=1.0)


def tfjob(model: Path, *, dynamic: bool) -> dict[str, Any]:
    container = {
        "name": "tensorflow",
        "image": "example.com/ads/click-rate:12",
        "command": ["python", str(SCRIPT)],
        "args": ["--model=/model"],
        "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "-1"}],
        "volumeMounts": [{"name": "model", "mountPath": "/model"}],
    }
    volumes = [{"name": "model", "hostPath": {"path": str(model)}}]
    template = {"spec": {"containers": [container], "volumes": volumes}}
    replicas = {"Chief": 1, "Worker": 2, "PS": 1, "Evaluator": 1}
    specs = {kind: {"replicas": count, "template": template} for kind, count in replicas.items()}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "demo"},
        "spec": {
            "runPolicy": {"cleanPodPolicy": "Running"},
            "tfReplicaSpecs": specs,
            "enableDynamicWorker": dynamic,
        },
    }


@pytest.mark.thorough
@pytest.mark.parametrize("dynamic", [False, True])
def test_parameter_servers_train_and_are_gone(tmp_path: Path, dynamic: bool) -> None:
    model = tmp_path / "model"
    model.mkdir()
    path = tmp_path / "tfjob.yaml"
    path.write_text(yaml.safe_dump(tfjob(model, dynamic=dynamic)))
    (loaded,) = loader.load(str(path))
    machine = Machine(tmp_path / "state", SETTINGS)
    backend: LocalBackend = machine.backend
    backend.submit(plan_of_file.plan(loaded, uuid.uuid4().hex), detach=True)
    try:
        # Only the test's own time limit bounds it: TensorFlow starts five times.
        *_, last = backend.follow("demo", "default")
        printed = "\n".join(machine.texts())
        assert last.status.phase is Phase.SUCCEEDED, printed
        assert {role.role: role.reason for role in last.status.roles} == {
            "chief": "CompletionsReached",
            "worker": "RunEnded",
            "ps": "RunEnded",
            "evaluator": "RunEnded",
        }
        full = ["chief", "ps", "worker"]
        assert f"a {full} of a cloud" in machine.texts("chief")
        assert f"a {['ps']} of a None" if dynamic else f"a {full} of a cloud" in machine.texts("ps")
        assert f"a {['evaluator']} of a cloud" in machine.texts("evaluator")
        assert "scored, off by 0.0" in machine.texts("evaluator")
        assert machine.processes() == []
    finally:
        backend.delete("demo", "default")
