"""Which examples the replicas' steps have had, as a count for each of many buckets of their contents."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from worker.input.batch_division import Share, batch_count, counted

_BUCKETS = 1 << 20
"""So many that two of a thousand examples seldom share one."""
_ODD = 0x9E3779B97F4A7C15 - (1 << 64)
"""An odd number of 64 bits whose ones are spread, 2^64 divided by the golden ratio."""


class ExamplesSeen:
    """Counts the examples of all replicas. Construct it under the strategy's scope. Without `apart` it does
    not tell one example from the other.
    """

    def __init__(self, *, apart: bool) -> None:
        self._buckets = _BUCKETS if apart else 1
        self.counts = tf.Variable(
            tf.zeros([self._buckets], tf.int32),
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
            name="examples_seen",
        )

    def add(self, batch: Any, share: Share | None) -> None:
        """Counts a replica's part of a batch, in a replica's context."""
        batch = counted(batch, share)
        if self._buckets == 1:
            self.counts.assign_add([tf.cast(batch_count(batch), tf.int32)])
            return
        buckets = tf.math.floormod(_digests(batch), self._buckets)
        ones = tf.ones_like(buckets, tf.int32)
        self.counts.assign_add(tf.math.unsorted_segment_sum(ones, buckets, self._buckets))


def _digests(batch: Any) -> Any:
    """Returns a number for each example, `int64[n]`, of all that it has."""
    total = tf.zeros([batch_count(batch)], tf.int64)
    for value in tf.nest.flatten(batch):
        numbers = _numbers(value)
        shape = tf.shape(numbers)
        rows = tf.reshape(numbers, [shape[0], tf.reduce_prod(shape[1:])])
        places = (2 * tf.range(tf.shape(rows)[1], dtype=tf.int64) + 1) * _ODD
        total = total * 31 + _mixed(tf.reduce_sum(rows * places, 1))
    return total


def _mixed(number: Any) -> Any:
    """Has the high bits decide over the low ones, too: those of a float that is a round number are 0."""
    for bits in (32, 29, 32):
        number = (number ^ tf.bitwise.right_shift(number, tf.constant(bits, tf.int64))) * _ODD
    return number


def _numbers(value: Any) -> Any:
    """Returns the elements as a dense `int64` tensor, 0 for what fills a ragged or sparse one up."""
    if isinstance(value, tf.RaggedTensor):
        return tf.ragged.map_flat_values(_numbers, value).to_tensor()
    if isinstance(value, tf.SparseTensor):
        numbers = tf.SparseTensor(value.indices, _numbers(value.values), value.dense_shape)
        return tf.sparse.to_dense(numbers, validate_indices=False)
    if value.dtype == tf.string:
        return tf.strings.to_hash_bucket_fast(value, 1 << 62)
    if value.dtype.is_floating:
        return tf.bitcast(tf.cast(value, tf.float64), tf.int64)
    return tf.cast(value, tf.int64)
