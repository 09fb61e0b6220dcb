"""Checkpoints: read by the words of TensorFlow's tutorials, and those of earlier versions by the runtime."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.paths import TESTS
from tests.worker import model_files
from tests.worker.cluster import PROGRAMS, running
from tests.worker.conftest import MakeCluster
from tests.worker.forked_tasks import computed
from tests.worker.whole.test_parameter_server import may_unshare
from worker.contract.records import Event

EARLIER = TESTS / "worker" / "earlier"
"""Of tiny:Tiny, 2 epochs of 20 steps, killed in the third; written by tf.train.Checkpoint(root=model)."""

STRATEGIES: dict[str, dict[str, Any]] = {
    "OneDevice": {"replicas": {"chief": 1}},
    "Mirrored": {"replicas": {"chief": 1}, "strategy_options": {"logicalCpus": 2}},
    "MultiWorkerMirrored": {"replicas": {"worker": 2}},
    # With a piece of every variable but the smallest on each ps.
    "ParameterServer": {
        "replicas": {"chief": 1, "worker": 2, "ps": 2},
        "strategy_options": {"minShardBytes": 64},
    },
}

_RESTORE = """
import json, sys
import numpy as np
import tensorflow as tf
sys.path.insert(0, sys.argv[1])
from remembered import Remembered, score, weights
folder, trained = sys.argv[2], list(np.load(sys.argv[3]).values())
path = tf.train.latest_checkpoint(folder)

def create_model():
    return Remembered({}).model()

def is_trained(model):
    return all(np.array_equal(one, other) for one, other in zip(weights(model), trained, strict=True))

found = {}
# tutorials/distribute/custom_training: no strategy, a model and an optimizer of one's own
model, optimizer = create_model(), tf.keras.optimizers.Adam()
checkpoint = tf.train.Checkpoint(optimizer=optimizer, model=model)
checkpoint.restore(path)
optimizer.build(model.trainable_variables)
found["optimizer and model"] = is_trained(model), int(optimizer.iterations)

# guide/checkpoint: nothing is left over on either side
model = create_model()
model.optimizer.build(model.trainable_variables)
checkpoint = tf.train.Checkpoint(optimizer=model.optimizer, model=model)
status = checkpoint.restore(path)
status.assert_existing_objects_matched()
status.assert_consumed()
found["everything"] = is_trained(model), int(model.optimizer.iterations)

manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=None)
assert manager.restore_or_initialize() == path
found["counter"] = int(checkpoint.save_counter)

model = create_model()
tf.train.Checkpoint(model=model).restore(path)
found["model"] = is_trained(model), int(model.optimizer.iterations)

# tutorials/distribute/parameter_server_training: the evaluator
eval_model = create_model()
for latest_checkpoint in tf.train.checkpoints_iterator(folder, timeout=0.1, timeout_fn=lambda: True):
    checkpoint = tf.train.Checkpoint(model=eval_model)
    checkpoint.restore(latest_checkpoint).expect_partial()
found["evaluator"] = is_trained(eval_model), score(eval_model)

# What earlier versions wrote was read like this.
model = create_model()
tf.train.Checkpoint(root=model).restore(path).expect_partial()
found["root"] = is_trained(model), int(model.optimizer.iterations)
if hasattr(model, "_is_compiled"):  # Keras 2
    model = create_model()
    model.load_weights(path).expect_partial()
    found["load_weights"] = is_trained(model), int(model.optimizer.iterations)

shapes = {name: shape for name, shape in tf.train.list_variables(path) if "/" in name}
found["copies"] = sum(tuple(shape) == (8, 32) for shape in shapes.values())
found["values"] = sum(int(np.prod(shape)) for shape in shapes.values())
found["saved"] = sum(int(weight.size) for weight in trained)
print(json.dumps(found))
"""


@pytest.mark.by_day(runtime=("ParameterServer-Looped",))
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("strategy", "style"),
    [
        ("OneDevice", "Remembered"),
        pytest.param("OneDevice", "Looped", marks=pytest.mark.thorough),
        pytest.param("Mirrored", "Remembered", marks=pytest.mark.thorough),
        pytest.param("Mirrored", "Looped", marks=pytest.mark.thorough),
        pytest.param("MultiWorkerMirrored", "Remembered", marks=pytest.mark.thorough),
        pytest.param("MultiWorkerMirrored", "Looped", marks=pytest.mark.thorough),
        pytest.param("ParameterServer", "Remembered", marks=pytest.mark.thorough),
        ("ParameterServer", "Looped"),
    ],
)
def test_the_words_of_the_tutorials_restore_what_was_trained(
    tmp_path: Path, strategy: str, style: str
) -> None:
    check(tmp_path, strategy, style)


@pytest.mark.thorough
@pytest.mark.parametrize(("strategy", "style"), [("OneDevice", "Remembered"), ("Mirrored", "Looped")])
def test_so_they_do_with_keras_3(tmp_path: Path, strategy: str, style: str) -> None:
    check(tmp_path, strategy, style, keras=3)


def check(directory: Path, strategy: str, style: str, keras: int = 2) -> None:
    weights = directory / "weights.npz"
    parameters = {"epochs": 3, "weights": str(weights)}
    options = {**STRATEGIES[strategy], "strategy": strategy, "entrypoint": f"remembered:{style}"}
    with running(directory, parameters=parameters, keras=keras, **options) as cluster:
        tasks = cluster.start_all()
        assert [task.ended() for task in tasks.values()] == [0] * len(tasks), tasks
    report = _run(_RESTORE, cluster.model_dir / "checkpoints", weights, keras=keras)
    steps = report["optimizer and model"][1]
    # A worker's step may be done twice where it was lost; here none is.
    assert steps == 60
    for words in ("optimizer and model", "everything", "root"):
        assert report[words] == [True, steps], words
    assert report["model"][0]
    accuracy = report["evaluator"][1]
    assert report["evaluator"] == [True, accuracy]
    assert accuracy > 0.5, "the tutorials' words restored nothing: 1 of 5 classes is right by chance"
    assert report.get("load_weights", [True, steps]) == [True, steps]
    assert report["counter"] == 3
    # The weights, the optimizer's two moments of those that are trained, its count and rate, and the number
    # of the checkpoint, and with Keras 3 the state of its dropout: nothing is there twice.
    trained = report["saved"] - 2 * 32
    assert report["copies"] == 3
    assert report["values"] == report["saved"] + 2 * trained + 3 + (2 if keras == 3 else 0)


@pytest.mark.nightly
@pytest.mark.thorough
@pytest.mark.skipif(not may_unshare(), reason="needs root and mount namespaces")
def test_what_a_programs_own_callbacks_save_is_written_by_the_chief(make_cluster: MakeCluster) -> None:
    parameters = {"epochs": 1, "weights": "weights.npz", "kept": "own/{epoch}"}
    cluster = make_cluster(entrypoint="remembered:Remembered", parameters=parameters)
    folder = cluster.directory / "own"
    folder.mkdir()
    hidden = ("unshare", "-m", "sh", "-c", f'mount -t tmpfs -o ro none {folder} && exec "$@"', "sh")
    tasks = [cluster.start(*task, prefix=hidden) for task in cluster.addresses if task[0] != "chief"]
    chief = cluster.start("chief")
    assert chief.ended() == 0, chief.output
    assert [task.ended() for task in tasks] == [0, 0, 0]
    assert (folder / "1.index").exists()


def test_a_run_goes_on_from_what_an_earlier_version_wrote(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(strategy="OneDevice", replicas={"chief": 1})
    folder = cluster.model_dir / "checkpoints"
    shutil.copytree(EARLIER, folder)
    (cluster.model_dir / "run-state.json").write_text('{"runId": "1", "phase": "training", "outcome": ""}')
    loaded = _run(_LOAD_EARLIER, cluster.model_dir)
    assert loaded == {"weights": True, "moments": True, "iterations": 40, "left": False}
    chief = cluster.start("chief")
    assert chief.ended() == 0, chief.output
    assert chief.until(Event.TRAINING).fields["initial_epoch"] == 2
    assert not chief.records(Event.NOTICE)
    assert model_files.epochs(cluster.model_dir) == [2, 3]
    assert model_files.iterations(cluster.model_dir, 3) == 60


_LOAD_EARLIER = """
import json, sys
import numpy as np
import tensorflow as tf
sys.path.insert(0, sys.argv[1])
from tiny import Tiny
from worker.checkpoints.model_directory import ModelDirectory
model = Tiny({}).model()
optimizer = model.optimizer
optimizer.build(model.trainable_variables)
directory = ModelDirectory(sys.argv[2])
directory.load(model, 2)
reader = tf.train.load_checkpoint(directory.checkpoint(2))
end = "/.ATTRIBUTES/VARIABLE_VALUE"
kernels = [model.layers[0].kernel, model.layers[1].kernel]
names = [f"layer_with_weights-{index}/kernel{end}" for index in range(2)]
moments = [f"optimizer/_variables/{index}{end}" for index in range(1, 9)]
print(json.dumps({
    "weights": all(
        np.array_equal(reader.get_tensor(name), kernel) for name, kernel in zip(names, kernels, strict=True)
    ),
    "moments": all(
        np.array_equal(reader.get_tensor(name), variable)
        for name, variable in zip(moments, optimizer.variables[1:9], strict=True)
    ),
    "iterations": int(optimizer.iterations),
    "left": reader.has_tensor(f"model/layer_with_weights-0/kernel{end}"),
}))
"""


def _run(code: str, *arguments: object, keras: int = 2) -> Any:
    return computed(code, PROGRAMS, *arguments, keras=keras)
