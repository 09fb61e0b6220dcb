"""Every method that a program may have, for a model of Keras 3. docs/reference/program.md shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from worker.data import fashion_mnist


class EveryMethod:
    """Parameter: `learningRate`."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.learning_rate = parameters.get("learningRate", 0.001)

    def model(self) -> Any:
        """Without a loss: `loss` says it."""
        inputs = keras.Input((28, 28, 1))
        hidden = keras.layers.Dense(64, activation="relu")(keras.layers.Flatten()(inputs))
        model = keras.Model(inputs, keras.layers.Dense(10)(hidden))
        model.compile(keras.optimizers.Adam(self.learning_rate), metrics=["accuracy"])
        return model

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        """In another order each time."""
        return fashion_mnist("train").shuffle(6_000).batch(batch_size)

    def evaluation_dataset(self, batch_size: int) -> tf.data.Dataset:
        """The held-out images."""
        return fashion_mnist("t10k").batch(batch_size)

    def predict_dataset(self, batch_size: int) -> tf.data.Dataset:
        """The held-out images, with their numbers as keys."""
        numbered = fashion_mnist("t10k").enumerate()
        return numbered.map(lambda number, example: (example[0], number)).batch(batch_size)

    def loss(self, labels: Any, predictions: Any) -> Any:
        """Of each example."""
        return keras.losses.sparse_categorical_crossentropy(labels, predictions, from_logits=True)

    def train_step(self, model: Any, batch: Any, global_batch_size: int) -> Any:
        """The replica's share of the mean over the global batch. The metrics are the step's own business."""
        images, labels = batch
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = self.loss(labels, logits)
            share = tf.nn.compute_average_loss(losses, global_batch_size=global_batch_size)
        model.optimizer.apply(tape.gradient(share, model.trainable_variables), model.trainable_variables)
        model.compute_metrics(images, labels, logits)
        return share

    def test_step(self, model: Any, batch: Any) -> dict[str, Any]:
        """Results by name: a mean over the replica's examples, and what the compiled metrics say."""
        images, labels = batch
        logits = model(images, training=False)
        losses = self.loss(labels, logits)
        return {**model.compute_metrics(images, labels, logits), "loss": tf.reduce_mean(losses)}

    def callbacks(self) -> list[Any]:
        """Ends the training when the held-out loss has stopped falling."""
        return [keras.callbacks.EarlyStopping("val_loss", patience=2)]

    def export(self, model: Any, path: str) -> None:
        """As SavedModel, and as `.keras`."""
        model.export(path, verbose=False)
        model.save(f"{path}/model.keras")
