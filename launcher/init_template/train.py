"""A training program: a model and its data. The runtime brings strategy, loop, checkpoints and evaluation."""

import gzip

import numpy as np
import tensorflow as tf

from worker.data import FASHION_MNIST  # small images that come with the runtime; put your own data here


def images(part):
    """Pixels in 0 to 1, float32[n, 28, 28], and classes, uint8[n]."""
    with gzip.open(FASHION_MNIST / f"{part}-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(FASHION_MNIST / f"{part}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return pixels.astype(np.float32) / 255, labels


class Program:
    def __init__(self, parameters):
        self.hidden_units = parameters.get("hiddenUnits", 128)

    def model(self):
        model = tf.keras.Sequential(
            [
                tf.keras.Input((28, 28)),
                tf.keras.layers.Flatten(),
                tf.keras.layers.Dense(self.hidden_units, activation="relu"),
                tf.keras.layers.Dense(10),
            ]
        )
        model.compile(
            optimizer="adam",
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        return model

    def train_dataset(self, batch_size):
        return tf.data.Dataset.from_tensor_slices(images("train")).shuffle(6000).batch(batch_size)

    def evaluation_dataset(self, batch_size):
        return tf.data.Dataset.from_tensor_slices(images("t10k")).batch(batch_size)
