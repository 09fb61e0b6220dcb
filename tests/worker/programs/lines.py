"""A program whose data are lines of numbers, in files of the folder `dataDir`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class Lines:
    def __init__(self, parameters: dict[str, Any]) -> None:
        self._files = f"{parameters['dataDir']}/train/*.csv"

    def model(self) -> Any:
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))])
        model.compile("sgd", "mse")
        return model

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        lines = tf.data.TextLineDataset(tf.data.Dataset.list_files(self._files, shuffle=False))
        numbers = lines.map(tf.strings.to_number)
        return numbers.map(lambda number: ([number], [number])).batch(batch_size)
