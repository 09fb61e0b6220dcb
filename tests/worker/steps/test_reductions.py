"""Whether a step's value is a mean over a replica's examples, or its share of the global batch's."""

from __future__ import annotations

from tests.worker.forked_tasks import computed

REDUCTIONS = """
import json
import tensorflow as tf
from worker.steps.reductions import differentiated, reductions

def mean(losses): return tf.reduce_mean(losses)
def all_dimensions(losses): return tf.reduce_mean(tf.stack([losses, losses], 1))
def by_size(losses): return tf.reduce_sum(losses) / tf.cast(tf.shape(losses)[0], tf.float32)
def with_penalty(losses): return 0.5 * tf.reduce_mean(losses) * 2.0 + tf.constant(3.0)
def mean_by_replicas(losses): return tf.reduce_mean(losses) / 2
def sum_by_batch(losses): return tf.reduce_sum(losses, 0) * (1 / 8)
def average(losses): return tf.nn.compute_average_loss(losses, global_batch_size=8)
def and_no_penalties(losses): return sum_by_batch(losses) + tf.reduce_sum([])
def and_a_list(losses): return tf.reduce_sum([sum_by_batch(losses), weight * 2.0])
def of_two(losses): return tf.reduce_sum(tf.concat([losses, losses], 0)) / 8
def total(losses): return tf.reduce_sum(losses)
def and_weights(losses): return sum_by_batch(losses) + tf.reduce_sum(tf.square(weights))
def activities(losses): return 0.01 * tf.reduce_sum(tf.stack([losses, losses], 1)) / 4 * 100
def product(losses): return tf.reduce_prod(losses)
def last(losses): return tf.reduce_mean(tf.stack([losses, losses], 1), axis=1)[0]

def told(of, size):
    found = []
    def step(losses):
        found.extend(reductions(of(losses)))
    tf.function(step).get_concrete_function(tf.TensorSpec([size]))
    return [[each.is_mean(), each.is_share(2, 8)] for each in found]

cases = (mean, all_dimensions, by_size, with_penalty, mean_by_replicas, sum_by_batch, average, total)
cases = (*cases, activities, of_two, and_weights, product, last, and_no_penalties, and_a_list)
weight, weights = tf.Variable(2.0), tf.Variable([1.0, 2.0])
found = {of.__name__: [told(of, 4), told(of, None)] for of in cases}
found["eager"] = reductions(tf.constant(1.0))

@tf.function(input_signature=[tf.TensorSpec([4])])
def step(features):
    with differentiated() as losses, tf.GradientTape() as tape:
        loss = tf.reduce_mean(weight * features)
        tape.gradient(loss, weight)
    with tf.GradientTape() as tape:
        later = weight * 2.0
    tape.gradient(later, weight)
    (place,) = reductions(losses[0])
    found["differentiated"] = [len(losses), losses[0] is loss, place.frames[-1].lineno > 0]
step(tf.ones(4))
print(json.dumps(found))
"""


def test_means_and_shares_are_told_apart() -> None:
    mean, share, neither = [[True, False]], [[False, True]], [[False, False]]
    assert computed(REDUCTIONS) == {
        "mean": [mean, mean],
        "all_dimensions": [mean, mean],
        "by_size": [mean, mean],
        "with_penalty": [mean, mean],
        "mean_by_replicas": [share, share],
        "sum_by_batch": [share, share],
        "average": [share, share],
        "total": [neither, neither],
        "of_two": [[[True, True]], share],  # of 8 values; as many as a batch has examples
        "activities": [mean, neither],  # by the examples of a replica's part
        "and_no_penalties": [share, share],
        "and_a_list": [share, share],
        "and_weights": [share, share],
        "product": [[], []],
        "last": [[], []],
        "eager": [],
        "differentiated": [1, True, True],
    }
