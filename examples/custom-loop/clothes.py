"""The network and the loss of TensorFlow's page on custom training loops, on images of clothing.

https://www.tensorflow.org/tutorials/distribute/custom_training. What that page writes by hand around them,
the distributed step, the loop over the epochs, metrics and checkpoints, is the runtime's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from worker.data import FASHION_MNIST, fashion_mnist

PENALTY = 1e-5
"""Of the dense layer's weights: small, and there to show that it is scaled by the number of replicas."""


class Clothes:
    """A program with a `loss`: it trains in the runtime's own loop.

    Parameters: `learningRate`; `dataDir`, the directory of Fashion-MNIST's four files. Without `dataDir` it
    is the subset that ships with the worker package.
    """

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.learning_rate = parameters.get("learningRate", 0.001)
        self.data_dir = parameters.get("dataDir", str(FASHION_MNIST))

    def model(self) -> tf.keras.Model:
        """From `float32[batch, 28, 28, 1]` to logits, `float32[batch, 10]`. The loss is not compiled in."""
        layers = tf.keras.layers
        model = tf.keras.Sequential(
            [
                layers.Input((28, 28, 1)),
                layers.Conv2D(32, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Conv2D(64, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(64, activation="relu", kernel_regularizer=tf.keras.regularizers.L2(PENALTY)),
                layers.Dense(10),
            ]
        )
        accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        model.compile(optimizer=tf.keras.optimizers.Adam(self.learning_rate), metrics=[accuracy])
        return model

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        """One pass over the training images, shuffled anew each time; the last batch is smaller."""
        return fashion_mnist("train", self.data_dir).cache().shuffle(60_000).batch(batch_size)

    def evaluation_dataset(self, batch_size: int) -> tf.data.Dataset:
        """One pass over the held-out images."""
        return fashion_mnist("t10k", self.data_dir).cache().batch(batch_size)

    def loss(self, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        """Each example's, `float32[batch]`: the runtime divides their sum by the global batch size."""
        return tf.keras.losses.sparse_categorical_crossentropy(labels, predictions, from_logits=True)
