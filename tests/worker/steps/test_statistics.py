"""What replicas assign to variables that are not trained comes to what one process would assign."""

from __future__ import annotations

from tests.worker.forked_tasks import computed

STATISTICS = """
import json
import tensorflow as tf
from worker.input import replica_shares
from worker.input.batch_division import Share
from worker.steps import statistics

one = tf.config.LogicalDeviceConfiguration()
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], [one] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
statistics.average(strategy)
statistics.average(strategy)  # twice is once

with strategy.scope():
    mean, total, kept, ones, branched = [tf.Variable(1.0, trainable=False) for _ in range(5)]
    moving = tf.Variable([[1.0]], trainable=False)
    products = [tf.Variable([[0.0]], trainable=False) for _ in range(3)]
    rows = tf.Variable(tf.zeros(11), trainable=False)
    reshaped = tf.Variable([1.0], trainable=False, name="reshaped")
    twice = tf.Variable(0.0, trainable=False)
    trained, number = tf.Variable(1.0), tf.Variable(1, trainable=False)

def step(examples):
    count = tf.cast(tf.size(examples), tf.float32)
    with replica_shares.of(Share(count / 5.0, tf.size(examples), tf.size(examples))):
        mean.assign(0.5 * mean + 0.5 * tf.reduce_mean(examples))
        total.assign_add(tf.reduce_sum(examples))
        kept.assign_sub(tf.reduce_sum(examples) / 10)
        ones.assign_add(1.0)
        column = examples[:, None]
        mean_of_squares = tf.reduce_mean(column * column, axis=0, keepdims=True)
        moving.assign(0.5 * moving + mean_of_squares - 2.0 * tf.reduce_sum(column, axis=0, keepdims=True))
        products[0].assign_add(tf.matmul(column, column, transpose_a=True))
        products[1].assign_add(tf.matmul(tf.transpose(column), column) / 2)
        products[2].assign(0.5 * products[2] + tf.einsum("bi,bj->ij", column, column))
        rows.scatter_add(tf.IndexedSlices(examples, tf.cast(examples, tf.int32)))
        rows.scatter_sub(tf.IndexedSlices(tf.ones(1), tf.cast(examples[:1], tf.int32)))
        reshaped.assign(0.5 * reshaped + tf.reshape(tf.reduce_sum(examples), [1]))
        once = tf.reduce_sum(examples)
        twice.assign(once + 3.0 * once)
        trained.assign_add(1.0)
        number.assign_add(1)
        tf.cond(examples[0] > 0, lambda: branched.assign(ones * 3.0), lambda: branched + 0.0)

parts = [tf.constant([1.0, 2.0, 3.0]), tf.constant([4.0, 10.0])]

of_replica = lambda context: parts[context.replica_id_in_sync_group]
run = tf.function(lambda examples: strategy.run(step, [examples]))
run(strategy.experimental_distribute_values_from_function(of_replica))
variables = (mean, total, kept, ones, branched, trained, number, twice, moving, *products)
in_rows = rows.numpy().tolist()
local = strategy.experimental_local_results
values = [[float(tf.squeeze(each)) for each in local(variable)] for variable in variables]
print(json.dumps([values, in_rows, [name for name, _ in statistics.unknown()], statistics.unknown()]))
"""


def test_replicas_assign_what_one_process_would() -> None:
    values, rows, unknown, again = computed(STATISTICS, keras=3)
    mean, total, kept, ones, branched, trained, number, twice, moving, *products = values
    assert mean == [2.5, 2.5], "half of 1, and half of the mean over all five, not over the replicas"
    assert total == [21.0, 21.0]
    assert kept == [-1.0, -1.0]
    assert ones == [2.0, 2.0]
    assert branched == [6.0, 6.0], "no exchange, which a branch does not have"
    assert trained == [2.0, 2.0]
    assert number == [2.0, 2.0]
    assert twice == [80.0, 80.0]
    assert moving == [0.5 + 26.0 - 40.0] * 2
    assert products == [[130.0, 130.0], [65.0, 65.0], [130.0, 130.0]]
    assert rows == [0.0, 0.0, 2.0, 3.0, 3.0, *[0.0] * 5, 10.0]
    assert unknown == ["reshaped"]
    assert again == []
