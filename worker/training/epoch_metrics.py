"""The metrics of an epoch in whose middle an earlier attempt has stopped: they count all of its steps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from worker.checkpoints.model_directory import ModelDirectory
from worker.checkpoints.position import Position
from worker.tf_compat import keras_models


def variables_of(metrics: Iterable[Any]) -> dict[str, Any]:
    """Returns the variables of `metrics` by names that are the same in each attempt."""
    variables = {}
    known: Counter[str] = Counter()
    for metric in metrics:
        known[metric.name] += 1
        name = re.sub(r"\W", "_", f"{metric.name}_{known[metric.name]}")
        for index, variable in enumerate(metric.variables):
            variables[f"{name}_{index}"] = keras_models.tf_variable(variable)
    return variables


class EpochMetrics:
    """Gives the metrics of the first epoch the values that were saved at `position`, in its middle.

    `metrics` returns the metrics that exist. Call the methods in all tasks of a collective.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        directory: ModelDirectory | None,
        position: Position,
        metrics: Callable[[], Iterable[Any]],
    ) -> None:
        self._strategy = strategy
        self._metrics = metrics
        self._left = directory.saved_metrics(position) if directory is not None and position.steps else {}

    def begin(self) -> None:
        """Assigns the values, after the metrics were reset."""
        self._put(add=False)

    def stepped(self) -> None:
        """Adds the values of metrics that Keras made in the first step. All of those are sums."""
        self._put(add=True)
        self._left.clear()

    def _put(self, *, add: bool) -> None:
        if not self._left:
            return
        with self._strategy.scope():
            for name, variable in variables_of(self._metrics()).items():
                value = self._left.pop(name, None)
                if value is not None and value.shape == variable.shape:
                    _put(self._strategy, variable, value, add=add)


def _put(strategy: tf.distribute.Strategy, variable: Any, value: Any, *, add: bool) -> None:
    is_sum = variable.aggregation == tf.VariableAggregation.SUM
    if variable.synchronization != tf.VariableSynchronization.ON_READ or not is_sum:
        (variable.assign_add if add else variable.assign)(value)
        return

    def replica() -> None:
        # Each replica has a part of the sum. TensorFlow would divide the value by their number, which an
        # integer does not survive.
        is_first = tf.equal(tf.distribute.get_replica_context().replica_id_in_sync_group, 0)
        part = tf.where(is_first, value, tf.zeros_like(value))
        (variable.assign_add if add else variable.assign)(part)

    strategy.run(replica)
