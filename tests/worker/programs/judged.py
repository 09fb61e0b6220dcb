"""A program that evaluates by a `test_step` of its own, on the numbers 0 to 20: batches of 4 leave 1."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

COUNT = 21


class Judged:
    """Trained by a `train_step`."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.keras = keras if parameters["keras"] == 3 else tf.keras
        self.returns = parameters.get("returns", "dict")

    def model(self) -> Any:
        layers = self.keras.layers
        model = self.keras.Sequential([layers.Input((1,)), layers.Dense(1)])
        model.compile(self.keras.optimizers.SGD(0.0), metrics=["mae"])
        model.squares = self.keras.metrics.Mean(name="squares")
        return model

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        return self.evaluation_dataset(batch_size).repeat(2)

    def evaluation_dataset(self, batch_size: int) -> tf.data.Dataset:
        numbers = tf.reshape(tf.range(COUNT, dtype=tf.float32), [COUNT, 1])
        return tf.data.Dataset.from_tensor_slices((numbers, 2 * numbers)).batch(batch_size)

    def train_step(self, model: Any, batch: Any, global_batch_size: int) -> Any:
        features, labels = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(features, training=True) - labels) ** 2) / global_batch_size
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    def test_step(self, model: Any, batch: Any) -> Any:
        features, labels = batch
        model(features, training=False)
        model.squares.update_state(tf.reduce_sum(features**2, axis=-1))
        if self.returns == "none":
            return None
        return {"squares": model.squares.result(), "double": tf.reduce_mean(labels)}


class Shuffled(Judged):
    """Its evaluation data have another order in each reading, by each way that data can have one."""

    def evaluation_dataset(self, batch_size: int) -> tf.data.Dataset:
        numbers = np.random.permutation(COUNT).astype(np.float32).reshape([COUNT, 1])
        dataset = tf.data.Dataset.from_tensor_slices((numbers, 2 * numbers)).shuffle(COUNT)
        return dataset.map(_slowly, num_parallel_calls=3, deterministic=False).batch(batch_size)


def _slowly(features: Any, labels: Any) -> Any:
    """Takes another time for each example."""
    work = tf.ones([tf.random.uniform([], 1, 300, tf.int32)] * 2)
    return features + 0 * tf.reduce_sum(work @ work), labels


class Compiled(Judged):
    """Trained as it is compiled."""

    train_step = None  # type: ignore[assignment]

    def model(self) -> Any:
        model = super().model()
        model.compile(self.keras.optimizers.SGD(0.0), "mse")
        return model
