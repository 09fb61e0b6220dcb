"""Iterates over the data: each execution is one call of a tf.function, with one step or several.

It does so in the three ways of https://www.tensorflow.org/tutorials/distribute/custom_training.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from worker.input.batch_division import Distributed
from worker.steps import peer_waits

ALL = 2**31 - 1
"""Greater than the number of steps in any execution."""


class Ran(NamedTuple):
    """What an execution has done. `loss` is that of the last step, a tensor that may not be computed yet;
    `steps` are fewer than wanted where a program's dataset has ended. They have waited `waits` seconds for
    their input, and for other tasks.
    """

    loss: Any
    steps: int
    waits: tuple[float, float]


class Iteration:
    """Runs `step(batch, share)`, which returns a loss, on all replicas of `strategy`.

    `dataset` has no end. With `by_batch` Python takes each batch from the dataset and passes it to a call;
    otherwise a call takes its batches itself. The number of batches is a tensor, so that a new number needs
    no new trace. With `eagerly` the calls are plain Python, without a tf.function.
    """

    def __init__(
        self,
        strategy: Any,
        step: Callable[[Any, Any], Any],
        dataset: Distributed,
        *,
        by_batch: bool = False,
        eagerly: bool = False,
    ) -> None:
        self._iterator = iter(dataset.elements)
        self._by_batch = by_batch or eagerly
        # A TPU takes all steps of a call by itself, and has no clock.
        has_clock = not isinstance(strategy, tf.distribute.TPUStrategy)
        clock = tf.timestamp if has_clock else lambda: tf.constant(0.0, tf.float64)

        def of_replica(element: Any) -> Any:
            return step(*dataset.parts(element))

        def total(losses: Any) -> Any:
            return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

        def one(batch: Any) -> Any:
            with peer_waits.noted(strategy) as waits:
                losses = strategy.run(of_replica, args=(batch,))
            return total(losses), peer_waits.total(waits)

        def packed(count: Any) -> Any:
            # The function captures the iterator. As an argument, it would be flattened and hashed for each
            # call, which took an eighth of a small model's time.
            iterator, losses = self._iterator, strategy.run(lambda: tf.constant(0.0))
            waited, ended = tf.zeros([2], tf.float64), clock()
            for _ in tf.range(count):
                batch = next(iterator)
                parts = tf.nest.flatten(batch, expand_composites=True)
                with tf.control_dependencies(parts):
                    came = clock()
                # On one core the step would else compute before the clock is read.
                later = [_after(came, part) for part in parts]
                batch = tf.nest.pack_sequence_as(batch, later, expand_composites=True)
                # A batch may be taken while the step before it computes: that is no wait.
                for_input = tf.maximum(came - ended, 0.0)
                graph = tf.compat.v1.get_default_graph()
                before = len(graph.get_operations())
                with peer_waits.noted(strategy) as waits:
                    losses = strategy.run(of_replica, args=(batch,))
                with tf.control_dependencies(_stateful(graph.get_operations()[before:])):
                    ended = clock()
                waited += tf.stack([for_input, peer_waits.total(waits)])
            return total(losses), waited

        self._one = one if eagerly else tf.function(one)
        self._packed = tf.function(packed)

    def step(self, element: Any) -> Any:
        """Runs one step with an `element` that is none of the dataset's. Returns its loss, as `run` does."""
        return self._one(element)[0]

    def run(self, count: int) -> Ran:
        """Runs at most `count` steps."""
        if not self._by_batch:
            loss, (for_input, for_peers) = self._packed(tf.constant(count))
            return Ran(loss, count, (float(for_input), float(for_peers)))
        loss, done, for_input, waits = tf.constant(0.0), 0, 0.0, []
        asked = time.monotonic()
        for batch in itertools.islice(self._iterator, count):
            for_input += time.monotonic() - asked
            loss, for_peers = self._one(batch)
            waits.append(for_peers)
            done += 1
            asked = time.monotonic()
        return Ran(loss, done, (for_input, sum(map(float, waits))))


def _after(time: Any, part: Any) -> Any:
    """Returns `part`, on its device, once `time` is known."""
    with tf.device(part.device), tf.control_dependencies([time]):
        return tf.identity(part)


def _stateful(operations: list[Any]) -> list[Any]:
    """Returns those that a step ends with, such as the updates of its variables."""
    return [each for each in operations if each.op_def is not None and each.op_def.is_stateful]
