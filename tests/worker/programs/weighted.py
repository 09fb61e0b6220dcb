"""Its weights count how often each example was trained: SGD takes 1 from an example's weight each time.

The loss of an example is its weight. So in each epoch it is the negative number of epochs before, if every
example is trained exactly once in an epoch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

EXAMPLES = 2000


class Counted:
    """Parameter `pace`: a file with the seconds to wait after each step."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.size = parameters["globalBatchSize"]
        self.pace = Path(parameters["pace"])

    def model(self) -> tf.keras.Model:
        weights = tf.keras.layers.Dense(
            1, use_bias=False, kernel_initializer="zeros", input_shape=(EXAMPLES,)
        )
        model = tf.keras.Sequential([weights])
        model.compile(tf.keras.optimizers.SGD(float(self.size)))
        return model

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        numbers = tf.data.Dataset.range(EXAMPLES).shuffle(EXAMPLES)
        return numbers.map(lambda number: (tf.one_hot(number, EXAMPLES), number)).batch(batch_size)

    def loss(self, labels: Any, predictions: Any) -> Any:
        return predictions[:, 0]

    def callbacks(self) -> list[tf.keras.callbacks.Callback]:
        return [tf.keras.callbacks.LambdaCallback(on_train_batch_end=self._wait)]

    def _wait(self, batch: int, logs: Any) -> None:
        time.sleep(float(self.pace.read_text()))


class Compiled(Counted):
    """The same by `Model.fit`."""

    loss = None  # type: ignore[assignment]

    def model(self) -> tf.keras.Model:
        model = super().model()
        model.compile(model.optimizer, loss=lambda labels, predictions: predictions[:, 0])
        return model
