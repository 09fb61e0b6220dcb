"""A classifier of small images, whose width and learning rate a sweep chooses."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from worker.data import FASHION_MNIST


class Program:
    """It takes the parameters `units` and `learningRate`."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._units, self._rate = parameters["units"], parameters["learningRate"]

    def model(self) -> tf.keras.Model:
        """One hidden layer."""
        layers = [
            tf.keras.Input((28, 28)),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(self._units, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
        model = tf.keras.Sequential(layers)
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.Adam(self._rate), loss, metrics=["accuracy"])
        return model

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        """6,000 images."""
        return _dataset("train").shuffle(6000).batch(batch_size)

    def evaluation_dataset(self, batch_size: int) -> tf.data.Dataset:
        """2,000 others."""
        return _dataset("t10k").batch(batch_size)


def _dataset(part: str) -> tf.data.Dataset:
    """Pixels from 0 to 1, float32[28, 28], and classes, uint8."""
    with gzip.open(FASHION_MNIST / f"{part}-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(FASHION_MNIST / f"{part}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return tf.data.Dataset.from_tensor_slices((pixels.astype(np.float32) / 255, labels))
