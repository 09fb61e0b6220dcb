"""The convolutional network of TensorFlow's distributed-training tutorial, on real images of clothing.

The model is that of https://www.tensorflow.org/tutorials/distribute/keras. The images are Fashion-MNIST's:
28x28 grey pixels in 10 classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from worker.data import FASHION_MNIST, fashion_mnist


class FashionMnist:
    """What the worker runtime asks of a program: a model and two datasets.

    Parameters: `learningRate`; `dataDir`, the directory of the four IDX files. Without `dataDir` it is the
    subset that ships with the worker package: 6,000 training and 2,000 held-out images.
    """

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.learning_rate = parameters.get("learningRate", 0.001)
        self.data_dir = parameters.get("dataDir", FASHION_MNIST)

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
        return fashion_mnist("train", self.data_dir).cache().shuffle(10_000).batch(batch_size)

    def evaluation_dataset(self, batch_size: int) -> tf.data.Dataset:
        """One pass over the held-out images."""
        return fashion_mnist("t10k", self.data_dir).batch(batch_size)
