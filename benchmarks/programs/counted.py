"""The program of `benchmarks.endless`: its weights count how often each example was trained."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.data.experimental.ops.testing import sleep

EXAMPLES = 160
STEP_MICROSECONDS = 25_000
"""Time of waiting in a step, which leaves the processor to starting tasks."""


class Counts(tf.keras.Model):
    """A weight for each example. By SGD with a rate of 1 a visit adds 1 to it, divided by the batch size."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = self.add_weight(name="counts", shape=[EXAMPLES], initializer="zeros")

    def call(self, numbers: tf.Tensor) -> tf.Tensor:
        """Takes `[batch]`, returns `[batch, 1]`."""
        return tf.gather(self.counts, numbers)[:, None]


class Counted:
    """Trained by the runtime's loop."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        pass

    def model(self) -> Any:
        """Counts nothing yet."""
        self._model = Counts()
        self._model.compile(tf.keras.optimizers.SGD(1.0))
        return self._model

    def train_dataset(self, batch_size: int) -> Any:
        """All examples once, in their order, slowly.

        No function comes before the sleep, which holds a lock while it waits for its input: in TensorFlow
        (2.21) a step that is cancelled inside of that function waits for the lock, and it for the step.
        """
        numbers = tf.data.Dataset.range(EXAMPLES).batch(batch_size).apply(sleep(STEP_MICROSECONDS))
        return numbers.map(lambda numbers: (numbers, tf.zeros_like(numbers, tf.float32)))

    def loss(self, labels: Any, predictions: Any) -> Any:
        """Of each example."""
        now = tf.strings.as_string(tf.timestamp(), precision=3)
        tf.print("step at", now, "after", self._model.optimizer.iterations, output_stream=sys.stdout)
        return -predictions[:, 0]
