"""How long a step waits for the other tasks of a collective, measured in its graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from worker.tf_compat.replaced_methods import replaced
from worker.tf_compat.strategies import worker_count


@contextlib.contextmanager
def noted(strategy: Any) -> Iterator[list[Any]]:
    """Yields a list to which the waits of what is traced in the block are added, `float64[]` in seconds: from
    when this task has its own gradients until it has the sum over all tasks.

    Nothing waits for the two clocks. What a step sums in a function of its own, such as a branch, is left
    out.
    """
    waits: list[Any] = []
    if worker_count(strategy) == 1:
        yield waits
        return
    extended, graph = strategy.extended, tf.compat.v1.get_default_graph()
    original = extended.batch_reduce_to

    def batch_reduce_to(reduce_op: Any, pairs: Any, options: Any = None) -> Any:
        if tf.compat.v1.get_default_graph() is not graph:
            return original(reduce_op, pairs, options)
        with tf.control_dependencies(_tensors(strategy, [value for value, _ in pairs])):
            before = tf.timestamp()
        sums = original(reduce_op, pairs, options)
        with tf.control_dependencies(_tensors(strategy, sums)):
            waits.append(tf.timestamp() - before)
        return sums

    with replaced(extended, batch_reduce_to=batch_reduce_to):
        yield waits


def total(waits: list[Any]) -> Any:
    """Returns their sum, `float64[]`."""
    return tf.add_n(waits) if waits else tf.constant(0.0, tf.float64)


def _tensors(strategy: Any, values: Any) -> list[Any]:
    local = [strategy.experimental_local_results(value) for value in values]
    tensors: list[Any] = tf.nest.flatten(local, expand_composites=True)
    return tensors
