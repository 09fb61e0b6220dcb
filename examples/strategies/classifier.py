"""A small image classifier, which every strategy trains as it is.

Nothing in it is about devices or machines: strategy, sharing of the data, checkpoints and who writes them are
the runtime's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from worker.data import fashion_mnist


class Classifier:
    """Parameter: `learningRate`. `batch_size` is always the global one, of all replicas together."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.learning_rate = parameters.get("learningRate", 0.001)

    def model(self) -> tf.keras.Model:
        """Compiled. From pixels in 0 to 1, `float32[batch, 28, 28, 1]`, to logits, `float32[batch, 10]`."""
        layers = tf.keras.layers
        model = tf.keras.Sequential(
            [
                layers.Input((28, 28, 1)),
                layers.Conv2D(32, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(64, activation="relu"),
                layers.Dense(10),
            ]
        )
        model.compile(
            optimizer=tf.keras.optimizers.Adam(self.learning_rate),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        return model

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        """One pass over the training images, shuffled anew each time."""
        return fashion_mnist("train").cache().shuffle(6_000).batch(batch_size)

    def evaluation_dataset(self, batch_size: int) -> tf.data.Dataset:
        """One pass over the held-out images."""
        return fashion_mnist("t10k").batch(batch_size)
