"""Keras 3's metrics under CentralStorage, put right."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from worker.tf_compat.keras_models import uses_keras_3


def mend_metrics(strategy: Any) -> None:
    """Has the replicas' additions to a metric counted once.

    Keras 3 adds by assigning `value + delta`, and TensorFlow sums what the replicas assign to a variable that
    they share: with 2 replicas each step doubles what was there before. So each assigns its part only.
    Keras 2, and strategies where each replica has a variable of its own for it, are right as they are.
    """
    replicas = strategy.num_replicas_in_sync
    if not (
        uses_keras_3()
        and replicas > 1
        and isinstance(strategy, tf.distribute.experimental.CentralStorageStrategy)
    ):
        return
    variable_type: Any = tf.keras.Variable
    assign = variable_type._direct_assign

    def assign_part(variable: Any, value: Any) -> None:
        in_replica = tf.distribute.has_strategy() and tf.distribute.get_replica_context() is not None
        if in_replica and variable.aggregation == "sum":
            already = tf.cast(variable.value, tf.float32) * (1.0 - 1.0 / replicas)
            value = value - tf.cast(already, value.dtype)
        assign(variable, value)

    variable_type._direct_assign = assign_part
