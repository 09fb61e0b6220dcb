"""Variables that are spread over replicas, such as a metric's sum, each of which has a part of the value.

TensorFlow (2.21) adds up such a variable three times for a checkpoint, each time in an exchange of its own,
which takes all tasks of a collective some 15 ms.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute.reduce_util import ReduceOp
from tensorflow.python.distribute.values import SyncOnReadVariable

_ADDED = (tf.VariableAggregation.SUM, tf.VariableAggregation.MEAN)


def of(trackable: Any) -> Any:
    """Returns the spread variable that `trackable` is, or stands for: as a variable of Keras 3, or as what
    TensorFlow writes for one. None for others.
    """
    if not isinstance(trackable, SyncOnReadVariable):
        trackable = getattr(trackable, "_value", getattr(trackable, "_obj", None))
    is_added = isinstance(trackable, SyncOnReadVariable) and trackable.aggregation in _ADDED
    return trackable if is_added else None


@contextlib.contextmanager
def added_up(trackables: Iterable[Any]) -> Iterator[dict[int, Any]]:
    """Adds up those of `trackables` that are spread, by one exchange. Yields the values by the variables'
    `id`; whoever reads such a variable outside of a replica meanwhile gets that value.

    All tasks of a collective must call it, with the same variables.
    """
    by_id = {id(variable): variable for each in trackables if (variable := of(each)) is not None}
    values: dict[int, Any] = {}
    for strategy in {
        id(each.distribute_strategy): each.distribute_strategy for each in by_id.values()
    }.values():
        variables = [each for each in by_id.values() if each.distribute_strategy is strategy]
        added = _function(strategy, tuple(each.ref() for each in variables))()
        values.update(zip(map(id, variables), added))
    original = SyncOnReadVariable._get_cross_replica

    def known(self: Any) -> Any:
        value = values.get(id(self))
        return original(self) if value is None else value

    SyncOnReadVariable._get_cross_replica = known
    try:
        yield values
    finally:
        SyncOnReadVariable._get_cross_replica = original


@functools.lru_cache(maxsize=2)
def _function(strategy: Any, variables: tuple[Any, ...]) -> Any:
    """Returns a function that adds the variables up. In a graph this takes 2 ms, else ten times that."""

    def replica() -> list[Any]:
        context = tf.distribute.get_replica_context()
        return [
            context.all_reduce(
                ReduceOp.from_variable_aggregation(variable.aggregation), variable.read_value()
            )
            for variable in (each.deref() for each in variables)
        ]

    def of_replicas() -> list[Any]:
        return [strategy.experimental_local_results(each)[0] for each in strategy.run(replica)]

    return tf.function(of_replicas, autograph=False)  # AutoGraph takes 0.3 s to trace it
