"""What is spread over replicas is added up once for a checkpoint, by both Kerases."""

from __future__ import annotations

import pytest

from tests.worker.forked_tasks import computed

_ADDED_UP = """
import json, sys
import tensorflow as tf
from worker.checkpoints.position import Position
from worker.checkpoints.state_copy import StateCopy
from worker.tf_compat import keras_models

folder, keras = sys.argv[1], tf.keras
device = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
spread = dict(trainable=False, synchronization=tf.VariableSynchronization.ON_READ)
with strategy.scope():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.total = keras.metrics.Sum()
    count = tf.Variable(tf.constant(0, tf.int64), aggregation=tf.VariableAggregation.SUM, **spread)
    mean = tf.Variable(0.0, aggregation=tf.VariableAggregation.MEAN, **spread)


@tf.function
def step():
    def replica():
        number = tf.distribute.get_replica_context().replica_id_in_sync_group
        model.total.update_state(tf.cast(number, tf.float32) + 1.0)
        count.assign_add(tf.cast(number, tf.int64) + 10)
        mean.assign(tf.cast(number, tf.float32) * 4.0)
    strategy.run(replica)


step()
exchanges = []
original = tf.distribute.Strategy.reduce
def reduce(self, *args, **options):
    exchanges.append(1)
    return original(self, *args, **options)
tf.distribute.Strategy.reduce = reduce
count.numpy()
exchanges.clear()
metrics = {"total": keras_models.tf_variable(model.total.variables[0]), "count": count, "mean": mean}
copy = StateCopy.of(model, Position(0, 1), metrics)
by_copy = len(exchanges)
step()
copy.write(f"{folder}/copy")
reader = tf.train.load_checkpoint(f"{folder}/copy")
found = {name.split("/")[1]: float(reader.get_tensor(name)) for name in reader.get_variable_to_shape_map()
         if name.startswith("epoch_metrics/")}
StateCopy.of(model, Position(0, 2), metrics).write(f"{folder}/second")
reader = tf.train.load_checkpoint(f"{folder}/second")
second = reader.get_tensor("epoch_metrics/count/.ATTRIBUTES/VARIABLE_VALUE")
exchanges.clear()
print(json.dumps([by_copy, found, int(second), int(count.numpy()), len(exchanges)]))
"""


@pytest.mark.parametrize("keras", [2, 3])
def test_a_copy_adds_each_up_once(tmp_path: object, keras: int) -> None:
    by_copy, found, second, now, beside = computed(_ADDED_UP, tmp_path, keras=keras)
    assert by_copy == 0, "no exchange for a variable of its own"
    assert found == {"total": 3.0, "count": 21.0, "mean": 2.0}, "as of the copy"
    assert (second, now) == (42, 42)
    assert beside == 1, "outside of a copy it is read as ever"
