"""A model's predictions for a batch, which the replicas share."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from worker.input.batch_division import batch_count, cut
from worker.tf_compat.strategies import uses_coordinator, worker_count


class ForwardPass:
    """Computes predictions: `function` returns the model's outputs, in their order, for a batch of features.

    It is a tf.function, unless the model was compiled to run eagerly. `features` is the `element_spec` of the
    batches, of any size. Each replica of `strategy` in this task gets a part of the batch. A replica without
    an example gets the last example again, and the second prediction is dropped, so that no layer gets an
    empty batch. Raises InvalidArgumentError where an output is not `[batch_size, ...]`.
    """

    def __init__(self, strategy: Any, model: Any, features: Any) -> None:
        self._strategy = strategy
        self._model = model
        self.function = tf.function(self._of_batch, input_signature=[features])
        if model.run_eagerly and not uses_coordinator(strategy):
            self.function = self._of_batch

    def _of_batch(self, features: Any) -> Any:
        count = tf.cast(batch_count(features), tf.int32)
        tasks = worker_count(self._strategy)
        replicas = self._strategy.num_replicas_in_sync // tasks
        each = (count + replicas - 1) // replicas

        def of_replica(batch: Any) -> Any:
            if replicas > 1:
                replica = tf.distribute.get_replica_context().replica_id_in_sync_group % replicas
                # Cut the batch before it is copied to a GPU.
                with tf.device("/device:CPU:0"):
                    begin = tf.minimum(replica * each, count - 1)
                    batch = cut(batch, begin, each)
            # A tuple, because Keras takes one for (features, labels).
            outputs = self._model.predict_step((batch,))
            return tf.nest.map_structure(lambda output: _checked(output, batch_count(batch)), outputs)

        outputs = self._strategy.run(of_replica, args=(features,))
        pieces = self._strategy.experimental_local_results(outputs)
        return tf.nest.map_structure(lambda *parts: _joined(parts)[:count], *pieces)


def _checked(output: Any, count: Any) -> Any:
    message = "an output of the model is not [batch_size, ...], a prediction for each example"
    if isinstance(output, tf.SparseTensor):
        raise ValueError(f"{message}: it is a SparseTensor, for which use tf.sparse.to_dense")
    if output.shape.rank == 0:
        raise ValueError(f"{message}: it is a scalar")
    counts = [tf.cast(number, tf.int64) for number in (batch_count(output), count)]
    with tf.control_dependencies([tf.debugging.assert_equal(*counts, message)]):
        return tf.identity(output)


def _joined(parts: tuple[Any, ...]) -> Any:
    return parts[0] if len(parts) == 1 else tf.concat(parts, 0)
