"""A model's predictions for a batch, each replica for a part of it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from worker.tf_compat.strategies import uses_coordinator


class ForwardPass:
    """`function` makes the model's outputs, in their order, of a batch of features.

    It is a tf.function, unless the model was compiled to run eagerly. `features` is the `element_spec` of the
    batches, of any size. Each replica of `strategy` gets a part. One for which there is no example gets the
    last again, whose second prediction is dropped: no layer sees an empty batch. Raises InvalidArgumentError
    where an output is not `[batch_size, ...]`.
    """

    def __init__(self, strategy: Any, model: Any, features: Any) -> None:
        self._strategy = strategy
        self._model = model
        self.function = tf.function(self._of_batch, input_signature=[features])
        if model.run_eagerly and not uses_coordinator(strategy):
            self.function = self._of_batch

    def _of_batch(self, features: Any) -> Any:
        count = batch_size(features)
        replicas = self._strategy.num_replicas_in_sync
        each = (count + replicas - 1) // replicas

        def of_replica(batch: Any) -> Any:
            if replicas > 1:
                replica = tf.distribute.get_replica_context().replica_id_in_sync_group
                # Before it is copied to a GPU.
                with tf.device("/device:CPU:0"):
                    begin = tf.minimum(replica * each, count - 1)
                    batch = tf.nest.map_structure(lambda value: _cut(value, begin, each), batch)
            # A tuple, since Keras takes one for (features, labels).
            outputs = self._model.predict_step((batch,))
            return tf.nest.map_structure(lambda output: _checked(output, batch_size(batch)), outputs)

        outputs = self._strategy.run(of_replica, args=(features,))
        pieces = self._strategy.experimental_local_results(outputs)
        return tf.nest.map_structure(lambda *parts: _joined(parts)[:count], *pieces)


def batch_size(features: Any) -> Any:
    """Of a batch, `int32[]`."""
    first = tf.nest.flatten(features)[0]
    if isinstance(first, tf.RaggedTensor):
        return tf.cast(first.nrows(), tf.int32)
    if isinstance(first, tf.SparseTensor):
        return tf.cast(first.dense_shape[0], tf.int32)
    return tf.shape(first)[0]


def _cut(value: Any, begin: Any, number: Any) -> Any:
    """At most `number` examples of a batch from `begin` on."""
    if not isinstance(value, tf.SparseTensor):
        return value[begin : begin + number]
    rest = value.dense_shape[1:]
    start = tf.concat([[tf.cast(begin, tf.int64)], tf.zeros_like(rest)], 0)
    return tf.sparse.slice(value, start, tf.concat([[tf.cast(number, tf.int64)], rest], 0))


def _checked(output: Any, count: Any) -> Any:
    said = "an output of the model is not [batch_size, ...], a prediction for each example"
    if isinstance(output, tf.SparseTensor):
        raise ValueError(f"{said}: it is a SparseTensor, for which use tf.sparse.to_dense")
    if output.shape.rank == 0:
        raise ValueError(f"{said}: it is a scalar")
    with tf.control_dependencies([tf.debugging.assert_equal(batch_size(output), count, said)]):
        return tf.identity(output)


def _joined(parts: tuple[Any, ...]) -> Any:
    return parts[0] if len(parts) == 1 else tf.concat(parts, 0)
