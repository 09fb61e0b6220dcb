"""A training on this machine whose workers come and go by `scale`, with TensorFlow."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from launcher import plan_of_file
from launcher.report import page
from launcher.status import Phase, RunStatus, latest, latest_with_time
from launcher.validation import loader
from tests.local.machine import Machine, eventually, linux_only
from worker.contract.records import MembershipRecord, Progress

pytestmark = linux_only

PROGRAM = """\
import tensorflow as tf


class Program:
    def __init__(self, parameters):
        pass

    def model(self):
        model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    def train_dataset(self, batch_size):
        features = tf.random.stateless_normal((64, 4), seed=(1, 2))
        data = (features, tf.reduce_sum(features, 1, keepdims=True))
        return tf.data.Dataset.from_tensor_slices(data).batch(batch_size)
"""
SPEC: dict[str, Any] = {
    "program": {
        "source": "tiny.py",
        "entrypoint": "tiny:Program",
        "parameters": {"epochs": 100_000, "stepsPerEpoch": 100, "globalBatchSize": 16},
    },
    "worker": {"replicas": 2, "minReplicas": 1, "maxReplicas": 3},
}
OF_STRATEGY: dict[str, dict[str, Any]] = {
    "ParameterServer": {"ps": {}},
    "MultiWorkerMirrored": {"chief": {}, "modelDir": "/model"},
}


def submit(machine: Machine, directory: Path, strategy: str) -> None:
    (directory / "tiny.py").write_text(PROGRAM)
    document = {"apiVersion": "launcher/v1alpha1", "kind": "TrainingCluster"}
    spec = {"strategy": strategy, **SPEC, **OF_STRATEGY[strategy]}
    named = {**document, "metadata": {"name": "demo"}, "spec": spec}
    (directory / "cluster.yaml").write_text(json.dumps(named))
    (loaded,) = loader.load(str(directory / "cluster.yaml"))
    machine.backend.submit(plan_of_file.plan(loaded, uuid.uuid4().hex), detach=True)


def trained_by(machine: Machine, *workers: int) -> RunStatus:
    """Waits until exactly these workers take part."""

    def found() -> RunStatus | None:
        status = machine.status()
        assert status.phase is not Phase.FAILED, status.message
        members = latest(status.records, MembershipRecord)
        return status if members is not None and tuple(members.workers) == workers else None

    status = eventually(found, f"a training by the workers {workers}")
    assert isinstance(status, RunStatus)
    return status


def makes_progress(machine: Machine) -> None:
    """Waits for steps that are done from now on."""
    before = latest_with_time(machine.status().records, Progress)

    def more() -> bool:
        now = latest_with_time(machine.status().records, Progress)
        return now is not None and (before is None or now[1] > before[1] + 1)

    eventually(more, "a later step")


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ["ParameterServer", "MultiWorkerMirrored"])
def test_workers_join_and_leave_while_the_others_train(
    machine: Machine, tmp_path: Path, strategy: str
) -> None:
    submit(machine, tmp_path, strategy)
    trained_by(machine, 0, 1)
    makes_progress(machine)
    assert machine.backend.scale("demo", "default", 3) == 2
    trained_by(machine, 0, 1, 2)
    makes_progress(machine)
    assert machine.backend.scale("demo", "default", 1) == 3
    status = trained_by(machine, 0)
    makes_progress(machine)
    chief = next(task for task in status.tasks if task.role == "chief")
    assert (chief.restarts, status.phase) == (0, Phase.RUNNING)
    shown = page.page_of(machine.backend.history("demo", "default"))
    assert "trains with 3 workers: worker 2 joined" in shown
    # Both may be missed at once, or one after the other.
    assert "trains with 1 worker: worker" in shown
