"""The program of `benchmarks.chaos`: it fits a plane to points, and its steps take time but no processor."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.data.experimental.ops.testing import sleep


class Fit:
    """Trained by `Model.fit`."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.step_microseconds = int(parameters["stepMicroseconds"])

    def model(self) -> tf.keras.Model:
        """A small network."""
        model = tf.keras.Sequential(
            [tf.keras.layers.Dense(8, activation="relu", input_shape=(4,)), tf.keras.layers.Dense(1)]
        )
        model.compile(tf.keras.optimizers.Adam(0.01), "mse")
        return model

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        """Without an end, so that any number of steps can be taken."""
        return self._points().repeat().batch(batch_size).apply(sleep(self.step_microseconds))

    def evaluation_dataset(self, batch_size: int) -> tf.data.Dataset:
        """The same points, once."""
        return self._points().batch(batch_size)

    def _points(self) -> tf.data.Dataset:
        features = tf.random.stateless_uniform([256, 4], [1, 2])
        labels = tf.reduce_sum(features, axis=1, keepdims=True)
        return tf.data.Dataset.from_tensor_slices((features, labels))


class Loop(Fit):
    """Trained by the runtime's own loop."""

    def loss(self, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        """Returns the loss of each example."""
        return tf.keras.losses.mse(labels, predictions)
