"""Rows of a table whose gradients are known: row 0 is looked up twice in every example, row 2 once.

The table has a constraint, which each step applies and which changes nothing.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

ROWS = 40


class Counted:
    """Parameter `optimizer`: a class's name and its arguments."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.optimizer, self.arguments = parameters["optimizer"]

    def model(self) -> tf.keras.Model:
        layers = tf.keras.layers
        looked_up = layers.Input((3,), dtype=tf.int64)
        table = layers.Embedding(
            ROWS,
            1,
            embeddings_initializer="ones",
            embeddings_constraint=lambda rows: 1.0 * rows,
            name="table",
        )
        total = layers.Lambda(lambda rows: tf.reduce_sum(rows, axis=[1, 2]))(table(looked_up))
        model = tf.keras.Model(looked_up, total)
        optimizer = getattr(tf.keras.optimizers, self.optimizer)(**self.arguments)
        model.compile(optimizer, lambda labels, predictions: predictions)
        return model

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        example = (tf.constant([0, 2, 0], tf.int64), tf.constant(0.0))
        return tf.data.Dataset.from_tensors(example).repeat().batch(batch_size)


class Looped(Counted):
    def loss(self, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        return predictions


class Stepped(Counted):
    def train_step(self, model: tf.keras.Model, batch: Any, global_batch_size: int) -> tf.Tensor:
        features, _ = batch
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(model(features), global_batch_size=global_batch_size)
        model.optimizer.minimize(loss, model.trainable_variables, tape)
        return loss


class Second(Stepped):
    """An optimizer that the model was not compiled with, and that is not built, applies the gradients."""

    def model(self) -> tf.keras.Model:
        model = super().model()
        model.second = type(model.optimizer).from_config(model.optimizer.get_config())
        return model

    def train_step(self, model: tf.keras.Model, batch: Any, global_batch_size: int) -> tf.Tensor:
        features, _ = batch
        variables = model.trainable_variables
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(model(features), global_batch_size=global_batch_size)
        model.second.minimize(loss, variables, tape)
        model.optimizer.apply_gradients([(tf.zeros_like(each), each) for each in variables])  # counts steps
        return loss
