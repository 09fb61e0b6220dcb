"""Each use of a private part of TensorFlow, Keras 2 or Keras 3 has the effect that the runtime needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.distribute.coordinator.values import RemoteValueImpl

from tests.worker.forked_tasks import computed
from worker.tf_compat import graphs, seeds, strategies, trackable, versions
from worker.tf_compat.remote_values import error_of, is_done, wait


def in_process(code: str, keras: str = "2") -> Any:
    """What `code` prints last, as JSON, in a process of its own that has the given Keras."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.py")  # AutoGraph reads the source
        path.write_text(code)
        return computed(path, keras=int(keras))


def test_versions() -> None:
    assert versions.too_old(tf.version.VERSION) is None
    assert versions.untested(tf.version.VERSION) is None, "test it, then raise NEWEST"
    assert [versions.too_old(version) is None for version in ("2.15.1", "2.16.0", "3.0.0-rc1")] == [
        False,
        True,
        True,
    ]
    assert [versions.untested(version) is None for version in ("2.21.3", "2.22.0", "3.0.0")] == [
        True,
        False,
        False,
    ]


ACTIVITY = """
import json, keras, tensorflow as tf
from worker.tf_compat import keras_3
device = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
within = keras.Sequential([keras.layers.Dense(1, activity_regularizer="l2", name="inner")])
model = keras.Sequential([keras.Input((2,)), within])
model.compile("sgd", "mse")
found = []
for version in ("3.13.2", "3.14.0"):
    keras_3.version = lambda: version
    two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for strategy in (two, tf.distribute.OneDeviceStrategy("CPU:0")):
        found.append(keras_3.unsupported(model, strategy))
print(json.dumps(found))
"""


CONDITION = """
import json, keras, tensorflow as tf
from worker.failures import sentence
device = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    weight, optimizer = keras.Variable(1.0), keras.optimizers.SGD()
    optimizer.build([weight])
def step():
    tf.cond(tf.constant(True), lambda: optimizer.apply([tf.constant(1.0)], [weight]), lambda: None)
try:
    tf.function(lambda: strategy.run(step))()
except RuntimeError as error:
    print(json.dumps(sentence(error)))
"""


def test_an_update_in_a_condition() -> None:
    assert "apply them outside of it, in every step" in str(computed(CONDITION))


def test_older_keras_adds_an_activity_regularizer_up() -> None:
    refused = "the activity_regularizer of inner (Keras 3.13.2; from 3.14 on it can)"
    assert in_process(ACTIVITY, keras="3") == [refused, None, None, None]


def test_versions_of_keras() -> None:
    (version,) = in_process("import json, keras; print(json.dumps([keras.__version__]))")
    assert versions.keras_too_old(version) is None
    assert versions.keras_untested(version) is None, "test it, then raise NEWEST_KERAS"
    assert "Keras 3.7.0 is older than 3.8" in str(versions.keras_too_old("3.7.0"))
    assert "Keras 3.16.1 is newer than 3.15" in str(versions.keras_untested("3.16.1"))


ELSEWHERE = """
import json
import keras
from worker.tf_compat import keras_3
callback = keras.callbacks.ModelCheckpoint("kept/{epoch}.weights.h5", save_weights_only=True)
keras_3.save_elsewhere(callback)
print(json.dumps(callback.filepath))
"""


def test_a_task_saves_to_a_folder_of_its_own() -> None:
    path = Path(in_process(ELSEWHERE, keras="3"))
    assert (path.name, path.parent.name[:12]) == ("{epoch}.weights.h5", "checkpoints-")


def test_a_value_is_done_when_it_was_fetched() -> None:
    value = RemoteValueImpl(None, None)
    assert not is_done(value)
    assert not wait(value, 0.01)
    value._set_values(None)
    assert wait(value, 0.01)
    assert not is_done(value), "a worker that is lost now does it again"
    value.get()
    assert is_done(value)
    assert error_of(value) is None


@pytest.mark.parametrize("end", ["_set_error", "_set_aborted"])
def test_what_failed_or_was_aborted_is_done(end: str) -> None:
    value = RemoteValueImpl(None, None)
    error = tf.errors.InvalidArgumentError(None, None, "no such word")
    getattr(value, end)(error)
    assert is_done(value)
    assert error_of(value) is error


@pytest.mark.parametrize(
    "strategy",
    [
        lambda: tf.distribute.OneDeviceStrategy("/cpu:0"),
        lambda: tf.distribute.MirroredStrategy(["/cpu:0"]),
        tf.distribute.experimental.CentralStorageStrategy,
    ],
)
def test_strategies_of_one_task(strategy: Callable[[], Any]) -> None:
    made = strategy()
    assert not strategies.uses_coordinator(made)
    assert (strategies.worker_count(made), strategies.ps_count(made)) == (1, 0)


def test_a_batch_size_is_found_behind_what_keeps_batches() -> None:
    numbers = tf.data.Dataset.range(100)
    assert graphs.batch_size(numbers.batch(5).repeat().prefetch(2).take(3)) == 5
    assert graphs.batch_size(numbers.padded_batch(7)) == 7
    assert graphs.batch_size(numbers.batch(5).map(lambda batch: batch[:2])) is None
    assert graphs.batch_size(numbers.batch(5).map(lambda batch: tf.concat([batch, batch], 0))) is None
    pairs = tf.data.Dataset.from_tensor_slices((tf.range(18), tf.range(18)))

    def named(number: Any, label: Any) -> Any:
        return {"ids": tf.one_hot(number, 3)}, label * 2

    mapped = pairs.batch(4).map(named, num_parallel_calls=2).shuffle(9).cache().map(lambda x, y: (x, y))
    assert graphs.batch_size(mapped) == 4
    unknown = pairs.batch(4).map(lambda number, _: tf.py_function(lambda each: each, [number], tf.int32))
    assert graphs.batch_size(unknown) is None


def in_a_branch(number: tf.Tensor, limit: int, message: str) -> None:
    tf.cond(number > 0, lambda: tf.debugging.assert_less(number, limit, message), tf.no_op)


@pytest.mark.parametrize("checked", [tf.debugging.assert_less, in_a_branch])
def test_the_function_that_raised_an_error_has_its_lines(checked: Any) -> None:
    def at_most_three(number: tf.Tensor) -> tf.Tensor:
        checked(number, 4, "too large")
        return number + 1

    count = tf.function(
        lambda number: tf.while_loop(lambda n: n < 9, lambda n: (at_most_three(n),), [number])
    )
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        count.get_concrete_function(tf.constant(0))(tf.constant(0))
    assert "at_most_three" in [frame.name for frame in graphs.function_frames(caught.value)]


def test_graphs_tell_shuffles_operations_and_lines() -> None:
    numbers = tf.data.Dataset.range(100)
    assert graphs.shuffles(numbers.shuffle(5).batch(2))
    assert not graphs.shuffles(numbers.batch(2))
    assert "Sin" in graphs.operation_types(numbers.map(lambda n: tf.sin(tf.cast(n, tf.float32))).batch(2))
    failing = numbers.map(lambda n: tf.debugging.check_numerics(1.0 / tf.cast(n, tf.float32), "far"))
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        list(failing)
    frames = graphs.dataset_frames(caught.value, [failing])
    assert any(frame.filename == __file__ for frame in frames)


def test_graphs_tell_how_many_rows_are_looked_up() -> None:
    table = tf.Variable(tf.zeros([9, 2]))

    def shapes(words: tf.TensorSpec, rows: Any = table) -> list[list[int | None]]:
        looked_up = tf.function(lambda words: tf.function(lambda: tf.gather(rows, words))())
        graph = looked_up.get_concrete_function(words).graph
        return [shape.as_list() for shape in graphs.lookup_shapes(graph)]

    assert shapes(tf.TensorSpec([4, 3], tf.int64)) == [[4, 3]]
    assert shapes(tf.TensorSpec([4, None], tf.int64)) == [[4, None]]
    assert shapes(tf.TensorSpec([4], tf.int64), tf.zeros([9, 2])) == [[4]]


def test_graphs_tell_the_first_files(tmp_path: Any) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("x,y\n1.0,2.0\n")
    first, both = str(tmp_path / "a.csv"), str(tmp_path / "*.csv")
    text = tf.data.Dataset.list_files(both, shuffle=False).interleave(tf.data.TextLineDataset)
    pairs = tf.data.Dataset.from_tensor_slices(([first, first], [1, 2]))
    for dataset in (
        text.batch(3).prefetch(2),
        tf.data.TextLineDataset(first).shuffle(3),
        tf.data.TFRecordDataset([first, "absent"]),
        tf.data.experimental.CsvDataset([first], [tf.float32] * 2).batch(3),
        tf.data.experimental.make_csv_dataset(first, 3, num_epochs=1),
        pairs.shuffle(2).map(lambda name, label: (tf.io.read_file(name), label)).batch(2),
    ):
        assert graphs.first_files(dataset) == [first]
    assert graphs.first_files(tf.data.Dataset.range(3)) == []


def test_graphs_tell_transformations() -> None:
    numbers = (
        tf.data.Dataset.range(100).shuffle(5).cache().apply(tf.data.experimental.assert_cardinality(100))
    )
    transformations = graphs.transformations(numbers.shuffle(3).batch(2))
    assert (transformations.count(graphs.SHUFFLE), transformations.count(graphs.CACHE)) == (2, 1)


def test_graphs_tell_what_gives_another_order_each_time() -> None:
    numbers = tf.data.Dataset.range(9)
    drawn = numbers.map(lambda number: (number, tf.random.uniform([])))
    files = numbers.interleave(lambda number: tf.data.Dataset.range(number).shuffle(9))
    assert graphs.reads_alike(numbers.filter(lambda number: number > 3).batch(2))
    assert graphs.reads_alike(drawn), "other numbers of the same examples"
    assert not graphs.reads_alike(drawn.filter(lambda _, number: number > 0.5).batch(2))
    assert not graphs.reads_alike(numbers.shuffle(9).batch(2))
    assert not graphs.reads_alike(files)


def test_the_seed_of_all_operations_is_known() -> None:
    assert seeds.global_seed() is None
    tf.random.set_seed(7)
    assert seeds.global_seed() == 7
    tf.random.set_seed(None)
    assert seeds.global_seed() is None


@pytest.mark.parametrize(("keras", "imports"), [("3", "tensorflow"), ("2", "tensorflow, keras")])
def test_an_import_of_keras_draws_as_in_a_process_of_its_own(keras: str, imports: str) -> None:
    """First with Keras not yet imported, then twice with it: only its first import draws."""
    code = f"import random; random.seed(1); import {imports}; drawn.append(random.random())"
    again = f"""
import json
drawn = []
exec({code!r})
from worker.tf_compat import seeds
with seeds.imports_draw():
    exec({code!r})
    exec({code!r})
exec({code!r})
print(json.dumps(drawn))
"""
    environment = os.environ | {"TF_USE_LEGACY_KERAS": "0" if keras == "3" else "1"}
    ran = subprocess.run([sys.executable, "-c", again], env=environment, stdout=subprocess.PIPE, check=True)
    fresh, first, *later = json.loads(ran.stdout)
    assert first == fresh
    assert set(later) == {0.13436424411240122}, "of random.seed(1)"


def test_a_checkpoint_has_the_names_that_are_chosen(tmp_path: Any) -> None:
    inner = tf.train.Checkpoint(weight=tf.Variable(3.0))
    other = tf.Variable(4.0)
    root = trackable.Named(lambda: {**trackable.children(inner), "other": other})
    path = tf.train.Checkpoint(root=root).write(str(tmp_path / "ckpt"))
    names = [name.partition("/")[0] for name, _ in tf.train.list_variables(path)]
    assert {"weight", "other"} <= set(names)


MODELS = """
import json, sys
import tensorflow as tf
from worker.tf_compat import keras_models as models
found = {}
model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
found["is_3"] = models.is_keras_3(model)
found["compiled"] = [models.is_compiled(model)]
model.compile("sgd", "mse", metrics=["mae"])
found["compiled"].append(models.is_compiled(model))
found["metrics"] = models.compiled_metrics(model) is not None
rate = models.learning_rate(model.optimizer)
found["rate"] = [hasattr(rate, "assign"), round(float(rate), 4)]
schedule = tf.keras.optimizers.schedules.ExponentialDecay(0.5, 10, 0.9)
rate = models.learning_rate(tf.keras.optimizers.SGD(schedule))
found["schedule"] = isinstance(rate, tf.keras.optimizers.schedules.LearningRateSchedule)
models.build_optimizer(model.optimizer, model.trainable_variables)
with models.fixed_rate(model.optimizer, 0.25):
    found["fixed"] = float(model.optimizer.learning_rate)
optimizers = model.optimizer, type(model.optimizer)(schedule)
found["constant"] = [models.constant_rate(each) for each in optimizers]
clipping = [type(model.optimizer)(clipnorm=1.0), type(model.optimizer)(global_clipnorm=1.0)]
found["plain"] = [models.takes_gradients_as_they_are(each) for each in (model.optimizer, *clipping)]
found["unused"] = models.rate_of(model.optimizer)
models.apply_sums(model.optimizer, [(tf.ones((1,)), model.trainable_variables[1])])
found["applied"] = round(float(model.trainable_variables[1][0]), 4)
found["used"] = round(models.rate_of(model.optimizer), 4)
data = tf.data.Dataset.from_tensors((tf.ones((4, 2)), tf.ones((4, 1)))).repeat(6)
"""

KERAS_2 = (
    MODELS
    + """
found["hooks"] = []
class Batches(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None): pass
class Tests(tf.keras.callbacks.Callback):
    def on_test_batch_end(self, batch, logs=None): pass
for callback in (Batches(), Tests(), tf.keras.callbacks.Callback()):
    has = models.has_batch_hooks
    found["hooks"].append([has(callback, kind) for kind in ("train", "test", "predict")])
models.compile_with_loss(model, "mae")
model.evaluate(data, verbose=0)
found["again"] = [model.loss, [metric.name for metric in model.metrics]]
legacy = tf.keras.optimizers.legacy.Adam()
models.build_optimizer(legacy, model.trainable_variables)
found["legacy"] = [len(legacy.weights), models.learning_rate(legacy)]
found["legacy"].append(models.takes_gradients_as_they_are(legacy))
decayed = tf.keras.optimizers.SGD(schedule)
decayed.build(model.trainable_variables)
found["current"] = float(models.current_learning_rate(decayed))
class Own(tf.keras.optimizers.Optimizer):
    def __init__(self):
        super().__init__(name="own")
scaling = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD())
found["without"] = [models.learning_rate(each) for each in (Own(), scaling)]
found["steps"] = models.steps_per_execution(model)
found["xla"] = models.uses_xla(model)
found["means"] = [metric.name for metric in models.compiled_loss_metrics(model)]

part = [None]
seen = []
models.scale_losses(lambda: part[0], lambda loss: seen.append(loss) or loss)
models.scale_losses(lambda: 7.0, lambda loss: 7.0)  # once for a process
def loss():
    made = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1, kernel_initializer="ones")])
    made.compile("sgd", "mse")
    data = (tf.ones((4, 2)), tf.zeros((4, 1)), made(tf.ones((4, 2))), None)
    found["has loss"] = models.computes_loss(made)
    return float(models.compute_loss(made, data, training=True))
whole = loss()
part[0] = 0.25
found["scaled"] = loss() / whole
found["seen"] = len(seen)
bare = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
bare.compile("sgd")
found["has no loss"] = models.computes_loss(bare)
print(json.dumps(found))
"""
)


def test_models_of_keras_2() -> None:
    assert in_process(KERAS_2) == {
        "is_3": False,
        "compiled": [False, True],
        "metrics": True,
        "rate": [True, 0.01],
        "schedule": True,
        "fixed": 0.25,
        "constant": [pytest.approx(0.01), None],
        "plain": [True, False, False],
        "unused": None,
        "applied": -0.01,
        "used": 0.01,
        "hooks": [[True, False, False], [False, True, False], [False, False, False]],
        "again": ["mae", ["loss", "mae"]],
        "legacy": [5, None, False],
        "current": 0.5,
        "without": [None, None],
        "steps": 1,
        "xla": False,
        "means": ["loss"],
        "has loss": True,
        "has no loss": False,
        "seen": 2,
        "scaled": 0.25,
    }


def test_models_of_keras_3() -> None:
    assert in_process(MODELS + "print(json.dumps(found))", "3") == {
        "is_3": True,
        "compiled": [False, True],
        "metrics": True,
        "rate": [True, 0.01],
        "schedule": True,
        "fixed": 0.25,
        "constant": [pytest.approx(0.01), None],
        "plain": [True, False, False],
        "unused": None,
        "applied": -0.01,
        "used": 0.01,
    }


SAVED = """
import json, os, sys, tempfile
import h5py
import tensorflow as tf
from worker.tf_compat import keras_calls
model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
keras_calls.save_at_once()
found, opened = {}, []
def opens(event, given):
    if event == "open" and (given[2] or 0) & os.O_WRONLY:
        opened.append(given[0])
sys.addaudithook(opens)
os.chdir(tempfile.mkdtemp())
os.mkdir("there")
for name in ("a.weights.h5", "there/a.keras"):
    save = model.save_weights if "weights" in name else model.save
    with h5py.File(name, "w"):  # another task writes it
        save(name)
    save(name, overwrite=True)
    found[name] = [os.path.realpath(name) in opened, os.path.getsize(name) > 1000]
model.load_weights("a.weights.h5")
found["loaded"] = len(tf.keras.models.load_model("there/a.keras").weights)
found["left"] = sorted(os.listdir()) + sorted(os.listdir("there"))
try:
    model.save("missing/a.keras")
except Exception as error:
    found["missing"] = "missing" in str(error)
else:
    found["missing"] = os.path.exists("missing/a.keras")
print(json.dumps(found))
"""


@pytest.mark.parametrize("keras", ["2", "3"])
def test_a_file_that_another_task_writes_is_saved(keras: str) -> None:
    assert in_process(SAVED, keras) == {
        "a.weights.h5": [True, True],
        "there/a.keras": [True, True],
        "loaded": 2,
        "left": ["a.weights.h5", "there", "a.keras"],
        "missing": True,
    }


AUTOGRAPH = """
import json
import tensorflow as tf
import tf_keras
from tensorflow.python.autograph.core import config
from tensorflow.python.autograph.impl import conversion
from worker.tf_compat import autograph
def own(): pass
autograph.spare_keras()
rules = len(config.CONVERSION_RULES)
autograph.spare_keras()
spared = [conversion.is_allowlisted(each) for each in (tf_keras.losses.mean_squared_error, own)]
print(json.dumps([len(config.CONVERSION_RULES) == rules, *spared]))
"""


def test_autograph_leaves_keras_2_as_it_is() -> None:
    """It still rewrites the user's code."""
    assert in_process(AUTOGRAPH) == [True, True, False]


KERAS_3 = """
import json
import keras
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
from worker.tf_compat import keras_3, keras_models, strategies
found = {}
share = [None]


class Own(keras.metrics.Metric):
    def __init__(self):
        super().__init__()
        self.sum = self.add_variable(shape=(), initializer="zeros")

    def update_state(self, value):
        self.sum.assign(self.sum + value)

    def result(self):
        return self.sum + 0.0


def types(function):
    return {each.type for each in tf.function(function).get_concrete_function().graph.get_operations()}


def per_replica(strategy, function):
    values = tf.function(lambda: strategy.run(function))()
    return [value.numpy().tolist() for value in strategy.experimental_local_results(values)]


if STRATEGY == "CentralStorage":
    strategy = tf.distribute.experimental.CentralStorageStrategy(["/cpu:0", "/cpu:1"])
    keras_3.mend(strategy, lambda: share[0], lambda *values: values)
    with strategy.scope():
        metrics = [keras.metrics.Sum(), keras.metrics.AUC(num_thresholds=3), Own()]
    keras_3.mend_metrics(strategy, metrics)
    found["adds"] = [keras_3.only_adds(metric) for metric in metrics]

    def update():
        metrics[0].update_state(3.0)
        metrics[1].update_state([1.0, 0.0], [0.9, 0.9])
        metrics[2].update_state(3.0)
        return tf.constant(0)

    for _ in range(4):
        per_replica(strategy, update)
    found["counted"] = [float(metrics[0].result()), float(metrics[2].result())]
    found["positives"] = metrics[1].true_positives.numpy().tolist()
else:
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    keras_3.mend(strategy, lambda: share[0], lambda *values: values)
    keras_3.mend(strategy, lambda: 1 / 0, lambda *values: values)  # once for a process
    strategies.average_statistics(strategy, lambda variable, value: value)
    counter = keras.Variable([1.0, 2.0])
    found["adds"] = sorted(
        name for name in types(lambda: [counter.assign_add(1.0), counter.assign_sub([0.5, 0.5])][0].value)
        if name.startswith("Assign")
    )
    counter.assign_add(1.0)
    found["added"] = counter.numpy().tolist()

    table = keras.layers.Embedding(5, 2)
    table.build()
    found["rows"] = "ResourceGather" in types(lambda: table(tf.constant([1, 4])))
    last = tf.gather(table.embeddings.value, [1, 4])
    found["same"] = bool(tf.reduce_all(table(tf.constant([1, -1])) == last))
    with tf.GradientTape() as tape:
        rows = table(tf.constant([1, 1]))
    found["gradient"] = type(tape.gradient(rows, table.embeddings)).__name__

    with strategy.scope():
        seeds = keras.random.SeedGenerator(3)
        normal = keras.layers.BatchNormalization(momentum=0.0)
        normal.build((None, 1))
    drawn = per_replica(strategy, seeds.next)
    found["seeds"] = [drawn[0] == [3, 0], drawn[0][0] != drawn[1][0]]
    unseeded = per_replica(strategy, lambda: keras.random.uniform((4,)))
    found["unseeded"] = unseeded[0] != unseeded[1]

    of_replica = lambda context: tf.fill((4, 1), float(context.replica_id_in_sync_group))
    columns = strategy.experimental_distribute_values_from_function(of_replica)
    normalise = lambda column: normal(column, training=True)
    tf.function(lambda parts: strategy.run(normalise, args=(parts,)))(columns)
    found["statistics"] = normal.moving_mean.numpy().tolist()

    def mean():
        share[0] = tf.constant(0.25)
        try:
            return keras.losses.MeanSquaredError()(tf.ones((2, 1)), tf.zeros((2, 1)))
        finally:
            share[0] = None
    found["share"] = per_replica(strategy, mean)
    halves = lambda: keras.losses.MeanSquaredError()(tf.ones((2, 1)), tf.zeros((2, 1)))
    found["half"] = per_replica(strategy, halves)

    with strategy.scope():
        weight = keras.Variable([0.0, 0.0])
        optimizer = keras.optimizers.SGD(1.0, clipnorm=1.0)
        optimizer.build([weight])

    def clipped():
        optimizer.apply([tf.constant([3.0, 4.0])], [weight])
        return tf.constant(0)

    per_replica(strategy, clipped)
    found["clipped"] = [round(value, 5) for value in weight.numpy().tolist()]

    with strategy.scope():
        inputs = keras.Input((2,))
        outputs = [keras.layers.Dense(1, name="a")(inputs), keras.layers.Dense(1, name="b")(inputs)]
        model = keras.Model(inputs, outputs)
        model.compile("sgd", ["mse", "mse"], metrics=[["mae"], ["mae"]])
        labels = tf.TensorSpec([4, 1])
        keras_3.build_compiled(model, (tf.TensorSpec([4, 2]), (labels, labels)))
    found["numbers"] = [each.name.rpartition("_")[2] for each in (*model.outputs, keras.KerasTensor((1,)))]
    found["losses"] = [metric.name for metric in keras_3.compiled_loss_metrics(model)]
    found["leaves"] = [metric.name for metric in keras_3.leaves(model.metrics)]
    found["computes"] = [keras_3.computes_loss(model), keras_3.computes_loss(keras.Model(inputs, outputs))]
    ones = tf.ones((4, 1))
    data = (tf.ones((4, 2)), (ones, ones), (0 * ones, 0 * ones), None)
    found["computed"] = float(keras_3.compute_loss(model, data, True))

    class Stepping(keras.Model):
        def train_step(self, data):
            return {}
    found["own"] = [keras_models.has_own(each, "train_step") for each in (model, Stepping())]
    hooks = keras.callbacks
    class Each(hooks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            pass
    class Tests(hooks.Callback):
        def on_test_batch_end(self, batch, logs=None):
            pass
    called = [
        Each(), Tests(), hooks.EarlyStopping(), hooks.TerminateOnNaN(), hooks.TensorBoard(),
        hooks.ModelCheckpoint("a.keras"), hooks.ModelCheckpoint("a.keras", save_freq=3),
        hooks.LambdaCallback(on_train_batch_end=print), hooks.LambdaCallback(on_epoch_end=print),
    ]
    found["hooks"] = [
        [keras_models.has_batch_hooks(callback, kind) for callback in called] for kind in ("train", "test")
    ]
print(json.dumps(found))
"""


def test_keras_3_under_a_strategy_of_several_replicas() -> None:
    assert in_process(KERAS_3.replace("STRATEGY", '"Mirrored"')) == {
        "adds": ["AssignAddVariableOp", "AssignSubVariableOp"],
        "added": [2.0, 3.0],
        "rows": True,
        "same": True,
        "gradient": "IndexedSlices",
        "seeds": [True, True],
        "unseeded": True,
        "statistics": [0.5],
        "share": [0.25] * 2,
        "half": [0.5, 0.5],
        "clipped": [-0.6, -0.8],
        "losses": ["a_loss", "b_loss"],
        "numbers": ["1", "2", "3"],
        "leaves": ["loss", "mae", "mae", "a_loss", "b_loss"],
        "computes": [True, False],
        "computed": 2.0,
        "own": [False, True],
        "hooks": [
            [True, False, False, False, False, False, True, True, False],
            [False, True, False, False, False, False, False, False, False],
        ],
    }


def test_metrics_of_keras_3_that_replicas_share() -> None:
    assert in_process(KERAS_3.replace("STRATEGY", '"CentralStorage"')) == {
        "adds": [True, True, False],
        "counted": [4 * 2 * 3.0] * 2,
        "positives": [8.0, 8.0, 0.0],
    }


CLUSTER = """
import json, socket, threading
import tensorflow as tf
from worker.tf_compat import connections, remote_values, server_contexts, strategies
from worker.tf_compat.coordinator import coordinate
from worker.tf_compat.lookup_tables import reach_tables_from_loops
found = {"before": [connections.is_connected(), connections.own_device()]}
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
ports = [opened.getsockname()[1] for opened in sockets]
for opened in sockets:
    opened.close()
cluster = tf.train.ClusterSpec({
    "worker": [f"localhost:{port}" for port in ports[:2]],
    "ps": [f"localhost:{port}" for port in ports[2:]],
})
# With fewer, a worker waits for itself: as in TensorFlow's tutorial on ParameterServerStrategy.
config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4)
servers = [
    tf.distribute.Server(cluster, job_name=job, task_index=index, config=config)
    for job in ("worker", "ps")
    for index in (0, 1)
]
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
seen = []
with connections.limited_to(lambda: [0], lambda: seen.append(connections.is_connected())):
    strategy = tf.distribute.ParameterServerStrategy(
        resolver, variable_partitioner=tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
    )
found["counts"] = [
    strategies.uses_coordinator(strategy), strategies.worker_count(strategy), strategies.ps_count(strategy)
]
found["after"] = [connections.is_connected(), connections.own_device()]
absences = coordinate(strategy, [1])
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
def workers():
    index = tf.function(lambda: tf.distribute.coordinator.experimental_get_current_worker_index())
    values = [coordinator.schedule(index) for _ in range(50)]
    return sorted({int(value.fetch()) for value in values})
found["first"] = [seen, sorted(absences.workers()), workers()]
connections.use_alone(True)
changing = threading.Thread(target=connections.connect, args=([0, 1],))
changing.start()
changing.join(1.0)
found["changing"] = [changing.is_alive(), connections.connecting(), connections.changes()]
with connections.unused():
    changing.join()
connections.use_alone(False)
absences.end([1])
while workers() != [0, 1]:
    pass
found["both"] = [sorted(absences.workers()), connections.connecting(), connections.changes()]
absences.fail(tf.errors.UnavailableError(None, None, "a ps is lost"))
try:
    coordinator.join()
except tf.errors.UnavailableError as error:
    found["failed"] = str(error)

value = coordinator.schedule(tf.function(lambda: tf.constant(5.0)))
coordinator.join()
found["value"] = [remote_values.is_done(value), remote_values.error_of(value), float(value.get())]

reach_tables_from_loops()
reach_tables_from_loops()
with strategy.scope():
    table = tf.lookup.StaticVocabularyTable(
        tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([0, 1], tf.int64)), 1
    )
@tf.function
def looked_up():
    total = tf.constant(0, tf.int64)
    for _ in tf.range(3):
        total += table.lookup(tf.constant("b"))
    return total
found["table"] = int(coordinator.schedule(looked_up).fetch())

with strategy.scope():
    found["whole"] = [hasattr(tf.Variable(tf.zeros((1 << 17, 1))), "variables")]
    with strategies.without_partitioner(strategy):
        found["whole"].append(hasattr(tf.Variable(tf.zeros((1 << 17, 1))), "variables"))
connections.keep_functions()

def reads():
    with tf.device("/job:ps/replica:0/task:1/device:CPU:0"):
        tf.timestamp()
reads()
closed = [server_contexts.close(f"localhost:{port}", server_contexts.own_id()) for port in ports[3:] + [1]]
try:
    reads()
except tf.errors.AbortedError as error:
    found["closed"] = [*closed, "Unable to find a context_id" in str(error)]
print(json.dumps(found), flush=True)
import os
os._exit(0)
"""


def test_a_cluster_of_parameter_servers() -> None:
    assert in_process(CLUSTER) == {
        "before": [False, None],
        "counts": [True, 1, 2],
        "after": [True, "/job:chief/replica:0/task:0/device:CPU:0"],
        "first": [[True], [1], [0]],
        "changing": [True, False, 0],
        "both": [[], False, 1],
        "failed": "a ps is lost",
        "closed": [True, False, True],
        "value": [True, None, 5.0],
        "table": 3,
        "whole": [True, False],
    }


COLLECTIVE = """
import json, os, socket
with socket.create_server(("127.0.0.1", 0)) as opened:
    port = opened.getsockname()[1]
os.environ["TF_CONFIG"] = json.dumps(
    {"cluster": {"worker": [f"localhost:{port}"]}, "task": {"type": "worker", "index": 0}}
)
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
from worker.tf_compat import connections, strategies
before = connections.is_in_collective()
with strategies.with_local_cpus(2):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
connections.put_key("answer", "42")
print(json.dumps([
    strategies.worker_count(strategy), strategy.num_replicas_in_sync, connections.get_key("answer"),
    before, connections.is_in_collective(),
]), flush=True)
os._exit(0)
"""


def test_a_collective() -> None:
    assert in_process(COLLECTIVE) == [1, 2, "42", False, True]


DATA_SERVICE = """
import gc, json, tempfile, threading, time
import tensorflow as tf
from worker.tf_compat import data_dispatcher, graphs
service = tf.data.experimental.service
folder = tempfile.mkdtemp()
dispatcher = service.DispatchServer(
    service.DispatcherConfig(port=0, work_dir=folder, fault_tolerant_mode=True)
)
address = dispatcher.target.partition("://")[2]
servers = [
    service.WorkerServer(service.WorkerConfig(dispatcher_address=address, heartbeat_interval_ms=100))
    for _ in range(2)
]
known = data_dispatcher.workers(address)
dataset = tf.data.Dataset.range(100).batch(1)
identifier = service.register_dataset(dispatcher.target, dataset)
job = tf.constant("a job")
arguments = (service.ShardingPolicy.DYNAMIC, dispatcher.target, identifier, dataset.element_spec, job, 2)
read = iter(graphs.data_service_dataset(*arguments))
values = [int(next(read)[0]) for _ in range(10)]
tasks = [data_dispatcher.unfinished(address, worker) for worker in known]
found = {"known": len(known), "tasks": [len(each) for each in tasks]}
found["one pass"] = len({task.iteration for each in tasks for task in each})
found["two tasks"] = len({task.task for each in tasks for task in each})
servers.pop()
gc.collect()
lost = known.index([each for each in known if not each.endswith(str(servers[0]._server.bound_port()))][0])
def end():
    while data_dispatcher.unfinished(address, known[1 - lost]):
        time.sleep(0.1)
    data_dispatcher.finish(address, known[lost], tasks[lost][0].task)
threading.Thread(target=end, daemon=True).start()
values += [int(each[0]) for each in read]
found["at most once"] = len(values) == len(set(values))
found["most"] = len(values) > 80
found["left"] = [data_dispatcher.unfinished(address, worker) for worker in known]
found["again"] = len(list(graphs.data_service_dataset(*arguments)))
try:
    data_dispatcher.workers("127.0.0.1:1")
except data_dispatcher.UnansweredError:
    found["unanswered"] = True
print(json.dumps(found), flush=True)
import os
os._exit(0)
"""


def test_a_pass_ends_without_a_data_worker_that_is_lost() -> None:
    assert in_process(DATA_SERVICE) == {
        "known": 2,
        "tasks": [1, 1],
        "one pass": 1,
        "two tasks": 2,
        "at most once": True,
        "most": True,
        "left": [[], []],
        "again": 0,
        "unanswered": True,
    }


OUTPUTS = """
import json, os, numpy as np, tensorflow as tf
from worker.tf_compat import keras_3, keras_models

keras, found = tf.keras, {}
def over_replicas(total, valid):  # as if another replica had 30 entries and 5 of them counted
    return total + 30.0, valid + 5.0

logits = tf.constant([[60.0, -60.0], [-60.0, 60.0], [60.0, 0.0]])
labels = tf.constant([[0.0], [1.0]])

@tf.function
def gradient(activation, loss, column, labels):
    with tf.GradientTape() as tape:
        tape.watch(logits)
        output = activation(logits[:, :1] if column else logits)
        given = loss(labels, keras_models.first_rows(output, 2))
    return tape.gradient(given, logits)

def of(activation, loss, column, labels):
    return float(tf.reduce_max(tf.abs(gradient(activation, loss, column, labels)))) > 0.1

binary, classes = keras.losses.BinaryCrossentropy(), keras.losses.SparseCategoricalCrossentropy()
found["logits"] = [
    of(keras.activations.sigmoid, binary, True, labels),
    of(tf.sigmoid, binary, True, labels),
    of(keras.activations.softmax, classes, False, tf.constant([1, 0])),
    of(tf.nn.softmax, classes, False, tf.constant([1, 0])),
]

@tf.function
def rows():
    outputs = tf.sigmoid(logits)
    outputs._keras_mask = tf.constant([[True, False]] * 3)
    first = keras_models.first_rows(outputs, 2)
    return first, outputs, first._keras_mask

first, outputs, mask = rows()
found["same"] = bool(tf.reduce_all(first == outputs[:2]))
found["mask"] = mask.numpy().tolist()
found["eager"] = keras_models.first_rows(logits, 1).shape.as_list()

def masked():
    prediction = tf.ones((2, 3, 1))
    prediction._keras_mask = tf.constant([[True, True, False], [True, False, False]])
    return float(keras.losses.MeanSquaredError()(tf.zeros((2, 3, 1)), prediction))

found["mean"] = masked()
if os.environ["TF_USE_LEGACY_KERAS"] == "1":
    keras_models.weigh_masks(over_replicas)
    keras_models.weigh_masks(lambda *values: 1 / 0)  # once for a process
else:
    keras_3.mend(tf.distribute.get_strategy(), lambda: None, over_replicas)
found["weighed"] = masked()  # 3 of 6 here, 5 of 30 there: 3 / 6 * 36 / 8
print(json.dumps(found))
"""


@pytest.mark.parametrize("keras", ["2", "3"])
def test_what_keras_knows_of_an_output(keras: str) -> None:
    assert in_process(OUTPUTS, keras) == {
        "logits": [True] * 4,
        "same": True,
        "mask": [[True, False]] * 2,
        "eager": [1, 2],
        "mean": 1.0,
        "weighed": 2.25,
    }
