"""Model.fit under ParameterServer, with a DatasetCreator and a variable that is partitioned.

Every pixel of a small image of clothing is a word: its place and how bright it is. A table gives each word
a vector; what the mean of an image's vectors says of it, a small network learns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from worker.data import fashion_mnist

PIXELS, LEVELS = 14 * 14, 8
DIMENSIONS = 96
"""Of a word's vector: the table has 1,568 x 96 floats, 588 KiB, enough for two pieces of 256 KiB or more."""


class PixelEmbedding:
    """What the worker runtime asks of a program. It takes no parameters of its own."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        del parameters

    def model(self) -> tf.keras.Model:
        """Compiled. From words, `int64[batch, 196]`, to logits, `float32[batch, 10]`."""
        layers = tf.keras.layers
        model = tf.keras.Sequential(
            [
                layers.Input((PIXELS,), dtype=tf.int64),
                layers.Embedding(PIXELS * LEVELS, DIMENSIONS),
                layers.GlobalAveragePooling1D(),
                layers.BatchNormalization(momentum=0.9),
                layers.Dropout(0.3),
                layers.Dense(64, activation="relu"),
                layers.Dense(10),
            ]
        )
        model.compile(
            optimizer=tf.keras.optimizers.Adam(0.002),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        return model

    def train_dataset(self, batch_size: int) -> tf.keras.utils.experimental.DatasetCreator:
        """Makes each worker's dataset on that worker, shuffled in an order of its own, without an end."""

        def make(context: tf.distribute.InputContext) -> tf.data.Dataset:
            images = words("train").cache().shuffle(6_000).repeat()
            return images.batch(context.get_per_replica_batch_size(batch_size)).prefetch(2)

        return tf.keras.utils.experimental.DatasetCreator(make)

    def evaluation_dataset(self, batch_size: int) -> tf.data.Dataset:
        """One pass over the held-out images."""
        return words("t10k").batch(batch_size)


def words(part: str) -> tf.data.Dataset:
    """Pairs of an image's words, `int64[196]`, and its class, `uint8[]`."""

    def read(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        small = tf.nn.avg_pool2d(image[tf.newaxis], 2, 2, "VALID")
        levels = tf.cast(tf.reshape(small, [PIXELS]) * (LEVELS - 0.001), tf.int64)
        return levels + LEVELS * tf.range(PIXELS, dtype=tf.int64), label

    return fashion_mnist(part).map(read)
