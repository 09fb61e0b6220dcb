"""A run that trains until a test ends it: nobody has to guess how long what the test does takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import yaml

from tests.api.plain_requests import wait_for
from tests.kind.runs import SECONDS, Runs

RUN: Final = "endless"
STEPS: Final = 100
"""Of an epoch."""
_ENOUGH: Final = "enough"
"""The label of the chief's pod that ends the training; Kubernetes writes it into a file in the pod."""
_LABELS: Final = "/etc/pod/labels"
_PROGRAM: Final = f"""\
import os
import pathlib
import signal
import tempfile
import tensorflow as tf

LABELS = pathlib.Path({_LABELS!r})


class UntilEnough(tf.keras.callbacks.Callback):
    # The chief writes the last epoch's number an epoch before: all members of a collective read it in time.
    def __init__(self, folder, dies):
        super().__init__()
        self.last = pathlib.Path(folder, "last-epoch")
        self.died = pathlib.Path(folder, "died")
        self.dies = dies

    def on_epoch_end(self, epoch, logs=None):
        if self.dies and epoch >= 2:
            try:
                self.died.touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
            except FileExistsError:
                pass
        if self.last.exists():
            self.model.stop_training = epoch >= int(self.last.read_text())
        elif LABELS.exists() and {_ENOUGH!r} in LABELS.read_text():
            self.last.write_text(str(epoch + 1))


class Program:
    def __init__(self, parameters):
        self.folder = parameters.get("folder", tempfile.gettempdir())
        self.dies = parameters.get("dies", False)

    def model(self):
        model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    def train_dataset(self, batch_size):
        features = tf.random.stateless_normal((64, 4), seed=(1, 2))
        data = (features, tf.reduce_sum(features, 1, keepdims=True))
        return tf.data.Dataset.from_tensor_slices(data).repeat().batch(batch_size)

    def callbacks(self):
        return [UntilEnough(self.folder, self.dies)]
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


def write(
    directory: Path,
    *,
    run: str = RUN,
    labels: dict[str, str] | None = None,
    fails: bool = False,
    dies: bool = False,
    **spec: Any,
) -> Path:
    """Writes the run's file, and its program. `spec` comes on top. `fails`: the program has an error.
    `dies`: one task of a run with a modelDir kills itself once, after some epochs.
    """
    parameters: dict[str, Any] = {"epochs": 1_000_000, "stepsPerEpoch": STEPS, "globalBatchSize": 12}
    if dies:
        parameters["dies"] = True
    if "modelDir" in spec:
        parameters["folder"] = spec["modelDir"]
    document = {
        "apiVersion": "launcher/v1alpha1",
        "kind": "TrainingCluster",
        "metadata": {"name": run, "labels": labels or {}},
        "spec": {
            "program": {"source": "./tiny.py", "entrypoint": "tiny:Program", "parameters": parameters},
            "chief": _CHIEF,
            "template": {"resources": {"cpu": "100m", "memory": "700Mi"}},
            **spec,
        },
    }
    program = (
        _PROGRAM.replace("        return model\n", '        raise ValueError("odd")\n') if fails else _PROGRAM
    )
    (directory / "tiny.py").write_text(program)
    (directory / "cluster.yaml").write_text(yaml.safe_dump(document))
    return directory / "cluster.yaml"


def submit(runs: Runs, directory: Path, **spec: Any) -> None:
    """Starts the run. See `write`."""
    runs.submit(file=write(directory, **spec), claim="modelDir" in spec)


def status(runs: Runs, run: str = RUN) -> dict[str, Any]:
    """Returns the run's status, as JSON has it. Fails if the run has ended."""
    done = runs.of("status", "-o", "json", run=run)
    assert done.returncode == 0, done.stderr
    run_status: dict[str, Any] = json.loads(done.stdout)["status"]
    assert not run_status["ended"], run_status["message"]
    return run_status


def trains_on(runs: Runs, run: str = RUN) -> None:
    """Waits for an epoch that begins from now on."""

    def epoch() -> int:
        return int((status(runs, run)["progress"] or {"epoch": 0})["epoch"])

    before = epoch()
    assert wait_for(lambda: epoch() > before + 1, SECONDS), runs.of("describe", run=run).stdout


def scale(runs: Runs, role: str, tasks: int) -> None:
    """Has the run go on with so many tasks of the role."""
    done = runs.of("scale", "--role", role, "--workers", str(tasks), run=RUN)
    assert done.returncode == 0, done.stderr


def finish(runs: Runs, run: str = RUN) -> None:
    """Ends the training after its present epoch. Fails unless the run succeeds, at the end of an epoch."""
    label = {"metadata": {"labels": {_ENOUGH: "true"}}}
    chief = runs.path("Pod", runs.pod("chief", run=run))
    assert runs.api.patch(chief, label, "application/merge-patch+json").status == 200
    runs.succeeds(run)
    last = json.loads(runs.of("status", "-o", "json", run=run).stdout)["status"]
    assert last["progress"]["step"] == STEPS


def end(runs: Runs) -> None:
    """Ends the training. Fails unless all tasks leave by themselves. See `finish`."""
    finish(runs)
    containers = [pod["status"]["containerStatuses"][0] for pod in runs.pods()]
    assert {container["state"]["terminated"]["exitCode"] for container in containers} == {0}
