"""The programs of `visited`, which can be slower: `pause` is the milliseconds that a batch takes."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import visited
from tensorflow.python.data.experimental.ops.testing import sleep


def _slower(program: Any, dataset: tf.data.Dataset) -> tf.data.Dataset:
    return dataset.apply(sleep(1000 * int(program.pause)))


class Fit(visited.Visited):
    def __init__(self, parameters: dict[str, Any]) -> None:
        super().__init__(parameters)
        self.pause = parameters["pause"]

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        return _slower(self, super().train_dataset(batch_size))


class Loop(Fit):
    def loss(self, labels: Any, predictions: Any) -> Any:
        return visited.visits(labels, predictions)


class Keras3(Fit):
    def __init__(self, parameters: dict[str, Any]) -> None:
        import keras

        super().__init__(parameters)
        self.keras = keras
