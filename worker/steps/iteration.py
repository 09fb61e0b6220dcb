"""Iterates over the data: each execution is one call of a tf.function, with one step or several.

It does so in the three ways of https://www.tensorflow.org/tutorials/distribute/custom_training.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from worker.input.batch_division import Distributed

ALL = 2**31 - 1
"""Greater than the number of steps in any execution."""


class Iteration:
    """Runs `step(batch, share)`, which returns a loss, on all replicas of `strategy`.

    With `endless`, `dataset` never ends. With `by_batch` Python takes each batch from the dataset and passes
    it to a call; otherwise a call takes its batches itself. The number of batches is a tensor, so that a new
    number needs no new trace. With `eagerly` the calls are plain Python, without a tf.function.
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
            # The function captures the iterator. As an argument, it would be flattened and hashed for each
            # call, which took an eighth of a small model's time.
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
        """Begins with the first batch again. It is not for an endless dataset."""
        self._iterator = iter(self._dataset)

    def run(self, count: int) -> tuple[Any, int]:
        """Runs at most `count` steps. Returns the loss of the last step, a tensor that may not be computed
        yet, and the number of steps: fewer where the dataset ended.
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
