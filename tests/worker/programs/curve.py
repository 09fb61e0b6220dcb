"""A small network on 52 samples of a curved surface, always in the same order."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf


class Fitted:
    """Trains by Model.fit."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.samples = parameters.get("samples", 52)
        self.penalty = parameters.get("penalty", 0.01)
        self.weighted = parameters.get("weighted", False)
        self.fail = parameters.get("fail", "")
        self.rate = parameters.get("rate", 0.05)

    def model(self) -> tf.keras.Model:
        tf.keras.utils.set_random_seed(7)
        layers = tf.keras.layers
        model = tf.keras.Sequential(
            [
                layers.Input((4,)),
                layers.Dense(8, activation="tanh", kernel_regularizer=tf.keras.regularizers.L2(self.penalty)),
                layers.Dense(1),
            ]
        )
        model.compile(tf.keras.optimizers.SGD(self.rate, momentum=0.5), "mse", metrics=["mae"])
        return model

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        return self.data(0).batch(batch_size)

    def evaluation_dataset(self, batch_size: int) -> tf.data.Dataset:
        return self.data(1).batch(batch_size)

    def data(self, seed: int) -> tf.data.Dataset:
        features = np.random.RandomState(seed).uniform(-1, 1, (self.samples, 4)).astype("float32")
        labels = np.sin(features @ np.array([[1.0], [-2.0], [3.0], [0.5]], "float32"))
        columns = [features, labels]
        if self.weighted:
            columns.append(np.linspace(0, 2, self.samples).astype("float32"))
        return tf.data.Dataset.from_tensor_slices(tuple(columns))


class Looped(Fitted):
    """Trains by the runtime's own loop."""

    def callbacks(self) -> list[Any]:
        def write(epoch: int, logs: Any) -> None:
            raise ValueError("no line could be written")

        return [tf.keras.callbacks.LambdaCallback(on_epoch_end=write)] if self.fail == "callback" else []

    def loss(self, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        if self.fail == "scalar":
            return tf.reduce_mean((labels - predictions) ** 2)
        if self.fail == "shape":
            return (labels - predictions) ** 2
        if self.fail == "keras":
            return tf.keras.losses.MeanSquaredError()(labels, predictions)
        losses = tf.keras.losses.MeanSquaredError(reduction="none")(labels, predictions)
        if self.fail == "check_numerics":
            losses = tf.debugging.check_numerics(losses / 0.0, "of the loss")
        return losses


class Stepped(Fitted):
    """Trains by a step of its own, which does what the runtime does for `loss`."""

    def train_step(self, model: tf.keras.Model, batch: Any, global_batch_size: int) -> tf.Tensor:
        features, labels = batch
        with tf.GradientTape() as tape:
            predictions = model(features, training=True)
            losses = tf.reduce_mean((labels - predictions) ** 2, axis=-1)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch_size)
            loss += tf.nn.scale_regularization_loss(tf.add_n(model.losses))
        variables = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return losses if self.fail == "shape" else loss
