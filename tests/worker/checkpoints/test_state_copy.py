"""A copy of a training's state: whole, of one moment, and the same when it is read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worker.forked_tasks import computed

_KEPT = """
import json, sys
import numpy as np
import tensorflow as tf
from worker.checkpoints import state_copy
from worker.checkpoints.position import Position
from worker.checkpoints.state_copy import StateCopy
from worker.tf_compat import keras_models

folder, optimizer = sys.argv[1:]
keras = tf.keras
strategy = tf.distribute.MirroredStrategy(["CPU:0"])
with strategy.scope():
    words = keras.Input([10], dtype="int32")
    inner = keras.layers.Flatten()(keras.layers.Embedding(50, 8)(words))
    model = keras.Model(words, keras.layers.Dense(1)(keras.layers.BatchNormalization()(inner)))
    model.compile(getattr(keras.optimizers, optimizer)(0.01), "mse")
rng = np.random.default_rng(1)
x, y = rng.integers(0, 50, (64, 10)).astype("int32"), rng.random((64, 1))


def variables():
    found = model.optimizer.variables
    found = [*model.variables, *(found() if callable(found) else found)]
    return [np.array(getattr(each, "value", each) if not callable(getattr(each, "value", None)) else each)
            for each in found]


def rewound(path):
    tf.train.Checkpoint(**state_copy.tutorial_names(model)).read(path).assert_existing_objects_matched()
    return bool(all(np.array_equal(one, other) for one, other in zip(before, variables())))


for _ in range(3):
    model.train_on_batch(x, y)
words = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
model.words = words
words.insert(["a", "b"], [1, 2])
model.seen = keras.metrics.Sum()  # in the copy as a part of the model, and as a metric
model.seen.update_state(7.0)
seen = keras_models.tf_variable(model.seen.variables[0])
before = variables()
copy = StateCopy.of(model, Position(2, 3), {"mean": tf.Variable(5.0), "seen": seen})
found = {}
for name in ("copy", "bytes", "parts"):
    for _ in range(3):
        model.train_on_batch(x, y)
    words.insert(["c"], [3])
    found[f"moved before {name}"] = not all(np.array_equal(a, b) for a, b in zip(before, variables()))
    read = StateCopy.from_bytes(b"".join(copy.pieces())) if name == "bytes" else copy
    state_copy.PART_BYTES = 100 if name == "parts" else 1 << 20
    read.write(f"{folder}/{name}")
    found[name] = [rewound(f"{folder}/{name}"), read.position == Position(2, 3)]
    found[name].append(sorted(words.export()[0].numpy().tolist()) == [b"a", b"b"])
    reader = tf.train.load_checkpoint(f"{folder}/{name}")
    for metric in ("mean", "seen"):
        found[name].append(float(reader.get_tensor(f"epoch_metrics/{metric}/.ATTRIBUTES/VARIABLE_VALUE")))
print(json.dumps(found))
"""


@pytest.mark.by_day("Adam-2", runtime=())
@pytest.mark.parametrize("keras", [2, 3])
@pytest.mark.parametrize("optimizer", ["Adam", "SGD"])
def test_a_copy_is_of_its_moment_while_the_training_goes_on(
    tmp_path: Path, keras: int, optimizer: str
) -> None:
    """Dense weights, rows of an embedding, averages, slots, a table of strings and metrics."""
    report = computed(_KEPT, tmp_path, optimizer, keras=keras)
    for name in ("copy", "bytes", "parts"):
        assert report[f"moved before {name}"]
        assert report[name] == [True, True, True, 5.0, 7.0], name
    assert len(list(tmp_path.glob("parts.data-*"))) > 5
    assert not (tmp_path / "writing").exists()


_DRAWN = """
import json, sys
import keras
import numpy as np
import tensorflow as tf
from worker.checkpoints.model_directory import ModelDirectory
from worker.checkpoints.position import Position
from worker.checkpoints.state_copy import StateCopy
from worker.tf_compat import keras_models

strategy = tf.distribute.MirroredStrategy(["CPU:0"])
with strategy.scope():
    layers = [keras.layers.Dense(8, "relu"), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input([4]), *layers])
    model.compile("adam", "mse")
x, y = np.ones((64, 4)), np.ones((64, 1))


def trained():
    for _ in range(3):
        model.train_on_batch(x, y)
    return [weights.tolist() for weights in model.get_weights()]


trained()
directory = ModelDirectory(sys.argv[1])
directory.back_up(StateCopy.of(model, Position(0, 3)))
first = trained()
assert directory.resume(model, print) == Position(0, 3)
print(json.dumps([first, trained()]))
"""


def test_random_numbers_go_on_with_the_copy(tmp_path: Path) -> None:
    """Or what follows a checkpoint would be another training each time."""
    first, second = computed(_DRAWN, tmp_path, keras=3)
    assert first == second


_DAMAGED = """
import json
import tensorflow as tf
from worker.checkpoints.position import Position
from worker.checkpoints.state_copy import Piece, StateCopy

tensors = [Piece("a", "", tf.range(100.0)), Piece("b", "", tf.constant(["x", "y"])),
           Piece("c", "", tf.zeros([0, 3], tf.bfloat16))]
copy = StateCopy(Position(1, 2), tuple(tensors))
data = b"".join(copy.pieces())
assert [str(a.value) for a in StateCopy.from_bytes(data).tensors] == [str(a.value) for a in tensors]
accepted = []
for at in range(len(data)):
    for bad in (data[:at], data[:at] + bytes([data[at] ^ 4]) + data[at + 1:]):
        try:
            accepted.append([at, str(StateCopy.from_bytes(bad))])
        except ValueError:
            pass
print(json.dumps(accepted))
"""


def test_what_was_cut_or_changed_is_no_copy() -> None:
    assert computed(_DAMAGED) == []


_ON_SERVERS = """
import json, os, sys
import numpy as np
import tensorflow as tf
from worker.checkpoints import state_copy
from worker.checkpoints.position import Position
from worker.checkpoints.state_copy import StateCopy
from worker.tf_compat import checkpoint_tensors, keras_models

folder = sys.argv[1]
import keras, socket, tf_keras
def free():
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return f"localhost:{made.getsockname()[1]}"
cluster = {"chief": [free()], "worker": [free()], "ps": [free(), free()]}
spec = tf.train.ClusterSpec(cluster)
servers = [tf.distribute.Server(spec, job_name=role, task_index=index, protocol="grpc")
           for role, index in (("worker", 0), ("ps", 0), ("ps", 1))]
os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}})
strategy = tf.distribute.ParameterServerStrategy(
    tf.distribute.cluster_resolver.TFConfigClusterResolver(),
    tf.distribute.experimental.partitioners.FixedShardsPartitioner(2),
)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    table = tf.Variable(tf.reshape(tf.range(1000.0 * 8), [1000, 8]), name="table")
    whole = tf.Variable(7.0)
model = tf.Module()
model.optimizer, model.table, model.whole = None, table, whole


@tf.function
def step():
    for shard in table.variables:
        shard.scatter_sub(tf.IndexedSlices(tf.ones([2, 8]), tf.constant([0, 3])))
        shard.assign_add(tf.ones_like(shard))
    whole.assign_add(1.0)


before = [*(shard.numpy() for shard in table.variables), whole.numpy()]
copy = StateCopy.of(model, Position(0, 1))
for _ in range(5):
    coordinator.schedule(step)
coordinator.join()
state_copy.PART_BYTES = 2000
device = "/job:chief/replica:0/task:0/device:CPU:0"
copy.write(f"{folder}/copy", device)
StateCopy.from_bytes(b"".join(copy.pieces())).write(f"{folder}/bytes", device)
now = np.concatenate([shard.numpy() for shard in table.variables])
found = {"moved": not np.array_equal(np.concatenate(before[:2]), now)}
for name in ("copy", "bytes"):
    reader = tf.train.load_checkpoint(f"{folder}/{name}")
    read = reader.get_tensor("table/.ATTRIBUTES/VARIABLE_VALUE")
    found[name] = [bool(np.array_equal(read, np.concatenate(before[:2]))),
                   float(reader.get_tensor("whole/.ATTRIBUTES/VARIABLE_VALUE"))]
    for shard in table.variables:
        shard.assign(tf.zeros_like(shard))
    options = tf.train.CheckpointOptions(experimental_io_device=device)
    status = tf.train.Checkpoint(root=model).read(f"{folder}/{name}", options=options)
    status.assert_existing_objects_matched()
    again = np.concatenate([shard.numpy() for shard in table.variables])
    found[name].append(bool(np.array_equal(again, np.concatenate(before[:2]))))
for kind in (keras, tf_keras):
    with strategy.scope():
        dense = kind.layers.Dense(1)
        dense.build((None, 1))
    remote = [each for each in checkpoint_tensors.entries(dense) if each.remote]
    found[kind.__name__] = sorted(each.read().shape.rank for each in remote)
print(json.dumps(found), flush=True)
os._exit(0)
"""


def test_a_copy_of_tables_on_parameter_servers_is_fetched_in_parts(tmp_path: Path) -> None:
    report = computed(_ON_SERVERS, tmp_path)
    of_layers = {"keras": report.pop("keras"), "tf_keras": report.pop("tf_keras")}
    assert report == {"moved": True, "copy": [True, 7.0, True], "bytes": [True, 7.0, True]}
    assert of_layers == {"keras": [1, 2], "tf_keras": [1, 2]}, "each is read in two requests"
    assert len(list(tmp_path.glob("copy.data-*"))) >= 16, "32,000 bytes, at most 2,000 at a time"
