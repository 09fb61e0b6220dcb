"""Tiny, which says what batch sizes it is asked for; `batch` is what it makes of them."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tiny import Tiny


class Sized(Tiny):
    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        self.batch = parameters.get("batch")
        self.drops = parameters.get("drops", False)

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        if not tf.inside_function():
            print("trains with batches of", batch_size, flush=True)
        dataset = self._samples().shuffle(200).repeat()
        return dataset.batch(self.batch or batch_size, drop_remainder=self.drops).prefetch(2)

    def evaluation_dataset(self, batch_size: int) -> tf.data.Dataset:
        if not tf.inside_function():
            print("evaluates with batches of", batch_size, flush=True)
        return super().evaluation_dataset(batch_size)


class ByLoss(Sized):
    def loss(self, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        return tf.keras.losses.mse(labels, predictions)
