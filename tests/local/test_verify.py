"""`verify`: real trainings by the real command, and what it says of programs that differ."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.local.machine import eventually

TRAINS = pytest.mark.thorough
"""Of those that train again for the cause, and so take long."""
PROGRAM = """
import json, os
import keras
import numpy as np
import tensorflow as tf

class Right:
    def __init__(self, parameters):
        pass
    def data(self):
        random = np.random.RandomState(0)
        x = random.normal(size=(320, 8)).astype("float32")
        return x, (x.sum(1) > 0).astype("int32")
    def layers(self):
        return []
    def model(self):
        layers = [keras.layers.Dense(16, "relu"), *self.layers(), keras.layers.Dense(2, name="last")]
        model = keras.Sequential([keras.Input((8,)), *layers])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"])
        return model
    def train_dataset(self, batch_size):
        return tf.data.Dataset.from_tensor_slices(self.data()).shuffle(320).batch(batch_size)
    def evaluation_dataset(self, batch_size):
        return tf.data.Dataset.from_tensor_slices(self.data()).batch(batch_size)

class Normalizing(Right):
    def layers(self):
        return [keras.layers.BatchNormalization(name="plain"), keras.layers.Dropout(0.4, name="drop")]

class OwnMean(Right):
    def train_step(self, model, batch, global_batch_size):
        x, y = batch
        with tf.GradientTape() as tape:
            predictions = model(x, training=True)
            losses = keras.losses.sparse_categorical_crossentropy(y, predictions, from_logits=True)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss / tf.distribute.get_strategy().num_replicas_in_sync

class Clipping(Right):
    def train_step(self, model, batch, global_batch_size):
        x, y = batch
        with tf.GradientTape() as tape:
            predictions = model(x, training=True)
            losses = keras.losses.sparse_categorical_crossentropy(y, predictions, from_logits=True)
            loss = tf.reduce_sum(losses) / global_batch_size
        gradients = tape.gradient(loss, model.trainable_variables)
        gradients, _ = tf.clip_by_global_norm(gradients, 0.1)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

def place():
    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    return config["task"]["index"] if config else None

class Sharding(Right):
    def train_dataset(self, batch_size):
        data = tf.data.Dataset.from_tensor_slices(self.data())
        return (data if place() is None else data.shard(2, place())).batch(batch_size)

class Halving(Right):
    def train_dataset(self, batch_size):
        whole = self.data()
        part = whole if place() is None else [each[place()::2] for each in whole]
        return tf.data.Dataset.from_tensor_slices(tuple(part)).batch(batch_size)

class Wrong(Right):
    def model(self):
        raise ValueError("no such thing")
"""
SCRIPT = """
import keras, os, sys
import numpy as np

random = np.random.RandomState(0)
x = random.normal(size=(200, 8)).astype("float32")
y = (x.sum(1) > 0).astype("int32")
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(2)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("adam", loss, metrics=["accuracy"])
model.fit(x, y, batch_size=48, epochs=3, validation_split=0.1, verbose=0)
model.fit(x, y, batch_size=25, epochs=1, steps_per_epoch=2, verbose=0)
model.save(os.environ["MODEL_DIR"] + "/mine.keras")
"""
WORKERS: dict[str, Any] = {"strategy": "MultiWorkerMirrored", "worker": {"replicas": 3}}
PAIR: dict[str, Any] = {"strategy": "MultiWorkerMirrored", "worker": {"replicas": 2}}
SERVERS = {**WORKERS, "strategy": "ParameterServer", "chief": {}, "ps": {}, "evaluator": {}}
DEVICES = {"strategy": "Mirrored", "chief": {"resources": {"nvidia.com/gpu": 8}}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a model directory, for files and what is left of them."""
    for name in ("mine/model", "temporary", "state"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "mine" / "model" / "mine").write_text("mine")
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path


def begin(
    folder: Path, program: dict[str, Any], spec: dict[str, Any], *options: str
) -> subprocess.Popen[str]:
    """Starts the command for a file whose model directory is in a volume of the user's."""
    document = {
        "apiVersion": "launcher/v1alpha1",
        "kind": "TrainingCluster",
        "metadata": {"name": "proved"},
        "spec": {
            "program": program,
            "modelDir": "/mine/model",
            "template": {
                "volumes": [{"name": "mine", "hostPath": {"path": str(folder / "mine")}}],
                "volumeMounts": [{"name": "mine", "mountPath": "/mine"}],
            },
            **spec,
        },
    }
    (folder / "cluster.yaml").write_text(json.dumps(document))
    command = [sys.executable, "-m", "launcher", "verify", str(folder / "cluster.yaml"), *options]
    variables = {"TMPDIR": str(folder / "temporary"), "XDG_STATE_HOME": str(folder / "state")}
    return subprocess.Popen(
        command, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def entrypoint(name: str, **parameters: Any) -> dict[str, Any]:
    return {
        "source": "program.py",
        "entrypoint": f"program:{name}",
        "parameters": {"globalBatchSize": 32, **parameters},
    }


def nothing_is_left(folder: Path) -> None:
    assert not list((folder / "temporary").iterdir())
    assert not list((folder / "state").rglob("*/run.json"))
    assert [path.name for path in (folder / "mine" / "model").iterdir()] == ["mine"]
    # A run's supervisor ends a moment after its last task.
    eventually(lambda: not any(_is_of(folder, path) for path in Path("/proc").glob("[0-9]*/environ")), "end")


def _is_of(folder: Path, path: Path) -> bool:
    try:
        return str(folder / "temporary").encode() in path.read_bytes()
    except OSError:
        return False


def verified(
    folder: Path, program: dict[str, Any], spec: dict[str, Any], *options: str
) -> tuple[int, dict[str, Any], str]:
    """Returns the exit code, the verdict, and what was said beside it."""
    process = begin(folder, program, spec, "-o", "json", *options)
    out, messages = process.communicate(timeout=240)
    assert process.returncode in (0, 3), messages
    nothing_is_left(folder)
    (verdict,) = json.loads(out)
    assert verdict["agrees"] == (process.returncode == 0)
    return process.returncode, verdict, messages


def values(verdict: dict[str, Any], name: str) -> list[Any]:
    """Returns the two values of each `fit`."""
    return [[each["one"], each["strategy"]] for each in verdict["compared"] if each["name"] == name]


@pytest.mark.thorough
def test_a_script_of_two_fits_agrees(folder: Path) -> None:
    process = begin(folder, {"script": "script.py"}, WORKERS, "--steps", "8")
    out, messages = process.communicate(timeout=240)
    assert process.returncode == 0, out + messages
    nothing_is_left(folder)
    assert "trains 8 steps in one process, and by MultiWorkerMirrored with 2 tasks" in messages
    rows = {tuple(line.split()[:3]) for line in out.splitlines()}
    assert {("script.py:11", "one", "process"), ("script.py:12", "one", "process")} <= rows
    # A pass has 180 examples, 3 batches of 48 and one of 36.
    assert {("steps", "8", "8"), ("examples", "360", "360"), ("examples", "50", "50")} <= rows
    assert "val_accuracy" in out
    assert "differs" not in out
    assert "note: tried here: 2 of 3 workers; --workers tries more" in out
    assert out.endswith("run proved: agrees: the strategy trains as one process does\n")


@TRAINS
def test_a_mean_of_ones_own_is_twice_the_gradient(folder: Path) -> None:
    code, verdict, messages = verified(folder, entrypoint("OwnMean"), DEVICES, "--steps", "4")
    assert code == 3, verdict
    assert "by Mirrored with 2 devices" in messages
    assert values(verdict, "examples") == [[128, 128]]
    different = [each["name"] for each in verdict["compared"] if not each["same"]]
    assert "weights at the start" not in different
    assert "weights after step 1" in different
    variable, mean = verdict["causes"]
    assert "the first variable that differs is " in variable
    assert "the gradient is 2 times that of one process, as 2 replicas' gradients are added up" in mean


@TRAINS
def test_a_norm_of_a_part_of_the_batch(folder: Path) -> None:
    code, verdict, _ = verified(folder, entrypoint("Clipping"), DEVICES, "--steps", "4")
    assert code == 3, verdict
    line = PROGRAM[: PROGRAM.index("clip_by_global_norm")].count("\n") + 1
    assert f"by the norm of all of them, in program.py:{line}: " in verdict["causes"][-1]
    assert "global_clipnorm" in verdict["causes"][-1]


def test_a_failure_is_told_as_that_of_a_run(folder: Path) -> None:
    process = begin(folder, entrypoint("Wrong"), DEVICES)
    out, messages = process.communicate(timeout=240)
    assert (process.returncode, out) == (1, "")
    assert "has failed: ValueError: no such thing" in messages
    assert "program.py" in messages
    assert "raise ValueError" in messages
    assert "launcher/" not in messages.partition("error:")[2]
    nothing_is_left(folder)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=TRAINS)])
def test_an_interrupted_one_leaves_nothing(folder: Path, number: signal.Signals) -> None:
    process = begin(folder, {"script": "script.py"}, WORKERS)
    eventually(lambda: list((folder / "temporary").rglob("pods/*/log.0")), "tasks")
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 130
    nothing_is_left(folder)


@pytest.mark.parametrize(
    "spec", [{"mode": "Evaluate", **WORKERS}, {"strategy": "Custom", "chief": {}, "program": None}]
)
def test_what_trains_nothing_is_refused(folder: Path, spec: dict[str, Any]) -> None:
    program = entrypoint("Right")
    process = begin(folder, program, {"command": ["true"], **spec} if spec.get("chief") == {} else spec)
    _, messages = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "`verify` compares a training" in messages
    nothing_is_left(folder)


@TRAINS
def test_batch_normalization_and_dropout_are_found_by_leaving_them_out(folder: Path) -> None:
    code, verdict, _ = verified(folder, entrypoint("Normalizing"), PAIR)
    assert code == 3
    causes = "\n".join(verdict["causes"])
    assert "batch normalization (plain)" in causes
    assert "random layers (drop)" in causes
    assert "without this the two agree" in causes
    options = ("--without", "random", "--without", "statistics")
    code, verdict, _ = verified(folder, entrypoint("Normalizing"), PAIR, *options)
    assert code == 0, verdict
    assert {"compared without random", "compared without statistics"} <= set(verdict["notes"])


@TRAINS
@pytest.mark.parametrize(
    ("name", "why"), [("Sharding", "calls shard()"), ("Halving", "not have the same data")]
)
def test_a_part_of_ones_own_leaves_examples_out(folder: Path, name: str, why: str) -> None:
    code, verdict, _ = verified(folder, entrypoint(name), PAIR, "--steps", "5")
    assert code == 3
    assert why in verdict["causes"][-1]
    assert "80 times an example of one process was left out" in verdict["causes"][-1]


@TRAINS
def test_parameter_servers_are_counted(folder: Path) -> None:
    code, verdict, _ = verified(folder, entrypoint("Right"), SERVERS)
    assert code == 0, verdict
    assert {each["name"] for each in verdict["compared"]} == {"steps", "examples"}
    assert values(verdict, "steps") == [[20, 20]]
    assert "--workers 1 compares losses and weights" in "\n".join(verdict["notes"])
    code, verdict, _ = verified(
        folder, entrypoint("Right", batchSizePerReplica=32, globalBatchSize=None), SERVERS, "--workers", "1"
    )
    assert code == 0, verdict
    assert values(verdict, "examples") == [[640, 640]]
    assert "weights at the end" in {each["name"] for each in verdict["compared"]}
