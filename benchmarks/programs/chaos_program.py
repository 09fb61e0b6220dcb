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
        """One pass, so that a generation of a collective need not read all that was trained before it."""
        return self._points().batch(batch_size).apply(sleep(self.step_microseconds))

    def evaluation_dataset(self, batch_size: int) -> tf.data.Dataset:
        """The same points, once."""
        return self._points().batch(batch_size)

    def _points(self) -> tf.data.Dataset:
        features = tf.random.stateless_uniform([256, 4], [1, 2])
        labels = tf.reduce_sum(features, axis=1, keepdims=True)
        return tf.data.Dataset.from_tensor_slices((features, labels))


class Counting(tf.keras.Model):
    """Counts how often each of its examples comes, which are numbers below `examples`, and in how many
    passes: a pass begins with the batch that has an example of the pass before.
    """

    def __init__(self, examples: int) -> None:
        super().__init__()
        self.examples = examples
        self.dense = tf.keras.layers.Dense(1)
        self.visits = self.add_weight("visits", [examples], tf.int64, "zeros", trainable=False)
        self.last_pass = self.add_weight("last_pass", [examples], tf.int64, "zeros", trainable=False)
        self.passes = self.add_weight("passes", [], tf.int64, "ones", trainable=False)

    def call(self, numbers: tf.Tensor) -> tf.Tensor:
        """Takes `[batch]`, returns `[batch, 1]`."""
        return self.dense(tf.cast(numbers[:, None], tf.float32) / self.examples)

    def train_step(self, data: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Counts before it trains."""
        numbers, _ = data
        again = tf.reduce_any(tf.gather(self.last_pass, numbers) == self.passes)
        self.passes.assign_add(tf.cast(again, tf.int64))
        self.visits.scatter_nd_add(numbers[:, None], tf.ones_like(numbers))
        self.last_pass.scatter_nd_update(numbers[:, None], tf.fill(tf.shape(numbers), self.passes))
        metrics: dict[str, tf.Tensor] = super().train_step(data)
        return metrics


class Data(Fit):
    """Data workers prepare the batches. There are as many as the parameter `examples` says."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        self.examples = int(parameters["examples"])

    def model(self) -> tf.keras.Model:
        """A plane, which counts."""
        model = Counting(self.examples)
        model.compile(tf.keras.optimizers.Adam(0.01), "mse")
        return model

    def _points(self) -> tf.data.Dataset:
        numbers = tf.data.Dataset.range(self.examples)
        return numbers.map(lambda number: (number, [tf.cast(number, tf.float32)]))


class Loop(Fit):
    """Trained by the runtime's own loop."""

    def loss(self, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        """Returns the loss of each example."""
        return tf.keras.losses.mse(labels, predictions)
