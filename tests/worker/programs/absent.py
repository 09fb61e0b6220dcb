"""Programs that take what only the chief has, or what nobody has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf


class Iterated:
    """Its step reads a dataset of the program's."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        del parameters
        self.candidates = tf.data.Dataset.from_tensor_slices(tf.ones((6, 1))).batch(3)

    def model(self) -> Any:
        model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
        model.compile(tf.keras.optimizers.SGD(0.01))
        return model

    def train_dataset(self, batch_size: int) -> Any:
        return tf.data.Dataset.from_tensor_slices((tf.ones((8, 1)), tf.ones((8, 1)))).batch(batch_size)

    def loss(self, labels: Any, predictions: Any) -> Any:
        total = 0.0
        for candidates in self.candidates:
            total += tf.reduce_sum(candidates)
        return tf.reduce_sum(tf.square(labels - predictions), axis=-1) + total


class NoFile(Iterated):
    def train_dataset(self, batch_size: int) -> Any:
        lines = tf.data.TextLineDataset("/nowhere/lines.txt")
        numbers = lines.map(lambda line: tf.reshape(tf.strings.to_number(line), (1,)))
        return numbers.map(lambda number: (number, number)).batch(batch_size)

    def loss(self, labels: Any, predictions: Any) -> Any:
        return tf.reduce_sum(tf.square(labels - predictions), axis=-1)
