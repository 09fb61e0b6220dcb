"""Model.fit on several devices of one machine: https://www.tensorflow.org/tutorials/distribute/keras.

TensorBoard's logs and the exported SavedModel are the runtime's; the tutorial's other callbacks are here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from worker.data import fashion_mnist


class MirroredFit:
    """Parameter: `checkpointDir`, where the weights go after each epoch."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.checkpoint_dir = parameters["checkpointDir"]

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
            optimizer=tf.keras.optimizers.Adam(),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        return model

    def callbacks(self) -> list[tf.keras.callbacks.Callback]:
        """The weights after each epoch, as `ckpt_<epoch>`, and a learning rate that falls with the epochs."""
        return [
            tf.keras.callbacks.ModelCheckpoint(
                f"{self.checkpoint_dir}/ckpt_{{epoch}}", save_weights_only=True
            ),
            tf.keras.callbacks.LearningRateScheduler(decay),
            PrintLearningRate(),
        ]

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        """One pass over the training images, shuffled anew each time."""
        return fashion_mnist("train").cache().shuffle(6_000).batch(batch_size)

    def evaluation_dataset(self, batch_size: int) -> tf.data.Dataset:
        """One pass over the held-out images."""
        return fashion_mnist("t10k").batch(batch_size)

    def predict_dataset(self, batch_size: int) -> tf.data.Dataset:
        """The held-out images, for `mode: Predict`; the key is the class that an image really has."""
        return fashion_mnist("t10k").batch(batch_size)


def decay(epoch: int) -> float:
    """The learning rate of an epoch, counted from 0."""
    if epoch < 3:
        return 1e-3
    if epoch < 7:
        return 1e-4
    return 1e-5


class PrintLearningRate(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """A line of the task's log for each epoch."""

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Counts from 0."""
        rate = float(self.model.optimizer.learning_rate.numpy())
        print(f"Learning rate for epoch {epoch + 1} is {rate:g}", flush=True)
