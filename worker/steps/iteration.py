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

        def of_replica(element: Any) -> Any:
            return step(*dataset.parts(element))

        def total(losses: Any) -> Any:
            return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

        def one(batch: Any) -> Any:
            return total(strategy.run(of_replica, args=(batch,)))

        def packed(count: Any) -> Any:
            # The function captures the iterator. As an argument, it would be flattened and hashed for each
            # call, which took an eighth of a small model's time.
            iterator, losses = self._iterator, strategy.run(lambda: tf.constant(0.0))
            for _ in tf.range(count):
                losses = strategy.run(of_replica, args=(next(iterator),))
            return total(losses)

        self._one = one if eagerly else tf.function(one)
        self._packed = tf.function(packed)

    def run(self, count: int) -> tuple[Any, int]:
        """Runs at most `count` steps. Returns the loss of the last step, a tensor that may not be computed
        yet, and the number of steps: fewer where a program's dataset has ended.
        """
        if self._by_batch:
            loss, done = tf.constant(0.0), 0
            for batch in itertools.islice(self._iterator, count):
                loss = self._one(batch)
                done += 1
            return loss, done
        return self._packed(tf.constant(count)), count
