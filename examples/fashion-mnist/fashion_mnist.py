"""The convolutional network of TensorFlow's distributed-training tutorial, on real images of clothing.

The model is that of https://www.tensorflow.org/tutorials/distribute/keras. The images are Fashion-MNIST's:
28x28 grey pixels in 10 classes, read straight from its gzipped IDX files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from worker.data import FASHION_MNIST

# Of an IDX file: the magic number, and the size of each dimension, four bytes each.
IMAGES_HEADER, LABELS_HEADER = 16, 8


class FashionMnist:
    """What the worker runtime asks of a program: a model and two datasets.

    Parameters: `learningRate`; `dataDir`, the directory of the four IDX files. Without `dataDir` it is the
    subset that ships with the worker package: 6,000 training and 2,000 held-out images.
    """

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.learning_rate = parameters.get("learningRate", 0.001)
        self.data_dir = parameters.get("dataDir", str(FASHION_MNIST))

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
        return self._images("train").cache().shuffle(10_000).batch(batch_size).map(_scaled)

    def evaluation_dataset(self, batch_size: int) -> tf.data.Dataset:
        """One pass over the held-out images."""
        return self._images("t10k").batch(batch_size).map(_scaled)

    def _images(self, part: str) -> tf.data.Dataset:
        """Pairs of an image, `uint8[28, 28, 1]`, and its class, `uint8[]`."""

        def records(name: str, size: int, header: int) -> tf.data.Dataset:
            path = f"{self.data_dir}/{part}-{name}-ubyte.gz"
            return tf.data.FixedLengthRecordDataset(path, size, header_bytes=header, compression_type="GZIP")

        def decoded(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            pixels = tf.reshape(tf.io.decode_raw(image, tf.uint8), (28, 28, 1))
            return pixels, tf.reshape(tf.io.decode_raw(label, tf.uint8), ())

        images = records("images-idx3", 28 * 28, IMAGES_HEADER)
        return tf.data.Dataset.zip((images, records("labels-idx1", 1, LABELS_HEADER))).map(decoded)


def _scaled(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.cast(images, tf.float32) / 255.0, labels
