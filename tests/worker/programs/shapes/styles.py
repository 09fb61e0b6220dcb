"""A shape as a program: by Model.fit, by `loss`, by `train_step`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from plain import scaling, update_metrics
from shapes import SHAPES


class Fitted:
    shapes = SHAPES

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.shape = self.shapes[parameters["shape"]](parameters["data"], parameters["pace"])
        self.model = self.shape.model
        self.train_dataset = self.shape.train_dataset
        self.evaluation_dataset = self.shape.evaluation_dataset
        if not parameters["export"]:
            self.export = lambda model, path: None


class Looped(Fitted):
    def loss(self, labels: Any, predictions: Any) -> Any:
        return self.shape.loss(labels, predictions)


class Stepped(Fitted):
    def train_step(self, model: Any, batch: Any, global_batch_size: int) -> Any:
        features, labels, weights = tf.keras.utils.unpack_x_y_sample_weight(batch)
        optimizer, variables = model.optimizer, model.trainable_variables
        scale, unscale = scaling(optimizer)
        with tf.GradientTape() as tape:
            predictions = model(features, training=True)
            losses = self.shape.loss(labels, predictions)
            if losses.shape.rank > 1:
                losses = tf.reduce_mean(losses, axis=list(range(1, losses.shape.rank)))
            share = tf.nn.compute_average_loss(
                losses, sample_weight=weights, global_batch_size=global_batch_size
            )
            if model.losses:
                share += tf.nn.scale_regularization_loss(tf.add_n(model.losses))
            scaled = scale(share)
        gradients = unscale(tape.gradient(scaled, variables))
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        update_metrics(model, features, labels, predictions, weights)
        return share
