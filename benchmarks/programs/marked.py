"""The program of `benchmarks.recovery`: each step prints to the log of the task that runs it its time,
and how many steps were done before it.
"""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf
from small import ByLoss, samples
from tensorflow.python.data.experimental.ops.testing import sleep

STEP_MICROSECONDS = 25_000
"""Time of waiting in a step, which leaves the processor to starting tasks."""


class Marked(ByLoss):
    """Trained by the runtime's loop, or by the one in `bare`."""

    def model(self) -> Any:
        """The same, which knows how far it is."""
        self._model = super().model()
        return self._model

    def train_dataset(self, batch_size: int) -> Any:
        """All samples once, slowly."""
        return samples().batch(batch_size, drop_remainder=True).apply(sleep(STEP_MICROSECONDS))

    def loss(self, labels: Any, predictions: Any) -> Any:
        """Of each example."""
        now = tf.strings.as_string(tf.timestamp(), precision=3)
        tf.print("step at", now, "after", self._model.optimizer.iterations, output_stream=sys.stdout)
        return super().loss(labels, predictions)


class Evaluated(Marked):
    """With something to evaluate."""

    def evaluation_dataset(self, batch_size: int) -> Any:
        """All samples, at once."""
        return samples().batch(batch_size)
