"""A run that trains until a test ends it: nobody has to guess how long what the test does takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import yaml

from tests.api.conftest import wait_for
from tests.kind.runs import SECONDS, Runs

RUN: Final = "endless"
STEPS: Final = 100
"""Of an epoch."""
_ENOUGH: Final = "enough"
"""The label of the chief's pod that ends the training; Kubernetes writes it into a file in the pod."""
_LABELS: Final = "/etc/pod/labels"
_PROGRAM: Final = f"""\
import pathlib
import tempfile
import tensorflow as tf

LABELS = pathlib.Path({_LABELS!r})


class UntilEnough(tf.keras.callbacks.Callback):
    # The chief writes the last epoch's number an epoch before: all members of a collective read it in time.
    def __init__(self, folder):
        super().__init__()
        self.last = pathlib.Path(folder, "last-epoch")

    def on_epoch_end(self, epoch, logs=None):
        if self.last.exists():
            self.model.stop_training = epoch >= int(self.last.read_text())
        elif LABELS.exists() and {_ENOUGH!r} in LABELS.read_text():
            self.last.write_text(str(epoch + 1))


class Program:
    def __init__(self, parameters):
        self.folder = parameters.get("folder", tempfile.gettempdir())

    def model(self):
        model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    def train_dataset(self, batch_size):
        features = tf.random.stateless_normal((64, 4), seed=(1, 2))
        data = (features, tf.reduce_sum(features, 1, keepdims=True))
        return tf.data.Dataset.from_tensor_slices(data).repeat().batch(batch_size)

    def callbacks(self):
        return [UntilEnough(self.folder)]
"""
_CHIEF: Final = {
    "volumes": [
        {
            "name": "pod",
            "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]},
        }
    ],
    "volumeMounts": [{"name": "pod", "mountPath": str(Path(_LABELS).parent)}],
}
SHORT_GRACE: Final = {"podTemplate": {"spec": {"terminationGracePeriodSeconds": 5}}}
"""A task works until its grace period ends."""


def submit(runs: Runs, directory: Path, **spec: Any) -> None:
    """Starts the run. `spec` comes on top."""
    parameters = {"epochs": 1_000_000, "stepsPerEpoch": STEPS, "globalBatchSize": 16}
    if "modelDir" in spec:
        parameters["folder"] = spec["modelDir"]
    document = {
        "apiVersion": "launcher/v1alpha1",
        "kind": "TrainingCluster",
        "metadata": {"name": RUN},
        "spec": {
            "program": {"source": "./tiny.py", "entrypoint": "tiny:Program", "parameters": parameters},
            "chief": _CHIEF,
            "template": {"resources": {"cpu": "100m", "memory": "700Mi"}},
            **spec,
        },
    }
    (directory / "tiny.py").write_text(_PROGRAM)
    (directory / "cluster.yaml").write_text(yaml.safe_dump(document))
    runs.submit(file=directory / "cluster.yaml")


def status(runs: Runs) -> dict[str, Any]:
    """Returns the run's status, as JSON has it. Fails if the run has ended."""
    done = runs.of("status", "-o", "json", run=RUN)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["status"]
    assert not found["ended"], found["message"]
    return found


def trains_on(runs: Runs) -> None:
    """Waits for an epoch that begins from now on."""

    def epoch() -> int:
        return int((status(runs)["progress"] or {"epoch": 0})["epoch"])

    before = epoch()
    assert wait_for(lambda: epoch() > before + 1, SECONDS), runs.of("describe", run=RUN).stdout


def scale(runs: Runs, role: str, tasks: int) -> None:
    """Has the run go on with so many tasks of the role."""
    done = runs.of("scale", "--role", role, "--workers", str(tasks), run=RUN)
    assert done.returncode == 0, done.stderr


def end(runs: Runs) -> None:
    """Ends the training after its present epoch. Fails unless all tasks leave by themselves, and the chief at
    the end of an epoch.
    """
    label = {"metadata": {"labels": {_ENOUGH: "true"}}}
    chief = runs.path("Pod", runs.pod("chief"))
    assert runs.api.patch(chief, label, "application/merge-patch+json").status == 200
    runs.succeeds(RUN)
    last = json.loads(runs.of("status", "-o", "json", run=RUN).stdout)["status"]
    assert last["progress"]["step"] == STEPS
    containers = [pod["status"]["containerStatuses"][0] for pod in runs.pods()]
    assert {container["state"]["terminated"]["exitCode"] for container in containers} == {0}
