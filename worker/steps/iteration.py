"""How a loop goes over its data: each execution is one call of a tf.function, with one step or many.

The three ways of https://www.tensorflow.org/tutorials/distribute/custom_training.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from worker.input.distribution import Distributed

ALL = 2**31 - 1
"""More steps than any execution has."""


class Iteration:
    """Runs `step(batch, share)`, which returns a loss, on all replicas of `strategy`.

    With `endless`, `dataset` has as many batches as are asked for. With `by_batch` each batch comes out of it
    into Python and goes into a call; otherwise a call takes its batches itself. How many is a tensor, so that
    no number is traced anew. With `eagerly` the calls are Python's own, without a tf.function.
    """

    def __init__(
        self,
        strategy: Any,
        step: Callable[[Any, Any], Any],
        dataset: Distributed,
        *,
        endless: bool,
        by_batch: bool = False,
        eagerly: bool = False,
    ) -> None:
        self._dataset = dataset.elements
        self._iterator = iter(self._dataset)
        self._endless = endless
        self._by_batch = by_batch or eagerly

        def of_replica(element: Any) -> Any:
            return step(*dataset.parts(element))

        def total(losses: Any) -> Any:
            return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

        def nothing() -> Any:
            return strategy.run(lambda: tf.constant(0.0))

        def one(batch: Any) -> Any:
            return total(strategy.run(of_replica, args=(batch,)))

        def packed(count: Any) -> Any:
            # The iterator is captured: as an argument it would be taken apart and hashed for each call, which
            # took an eighth of a small model's time.
            iterator, losses = self._iterator, nothing()
            for _ in tf.range(count):
                losses = strategy.run(of_replica, args=(next(iterator),))
            return total(losses)

        def until_end(iterator: Any, count: Any) -> Any:
            losses, done = nothing(), 0
            for _ in tf.range(count):
                batch = iterator.get_next_as_optional()
                if not batch.has_value():
                    break
                losses = strategy.run(of_replica, args=(batch.get_value(),))
                done += 1
            return total(losses), done

        self._one = one if eagerly else tf.function(one)
        self._packed = tf.function(packed)
        self._until_end = tf.function(until_end)

    def restart(self) -> None:
        """Begins with the first batch again. Not for an endless dataset."""
        self._iterator = iter(self._dataset)

    def run(self, count: int) -> tuple[Any, int]:
        """At most `count` steps. Returns the loss of the last, a tensor that may not be there yet, and how
        many it were: fewer where the dataset is over.
        """
        if self._by_batch:
            loss, done = tf.constant(0.0), 0
            for batch in itertools.islice(self._iterator, count):
                loss = self._one(batch)
                done += 1
            return loss, done
        if self._endless:
            return self._packed(tf.constant(count)), count
        loss, steps = self._until_end(self._iterator, tf.constant(count))
        return loss, int(steps)
