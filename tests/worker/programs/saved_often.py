"""A model whose only weight says how many steps it has been trained, saved by a callback every few steps."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf


class Counted:
    """Parameters: `folder` for the files, `saveFreq`."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = parameters

    def model(self) -> Any:
        keras = self.keras()
        layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = keras.Sequential([keras.Input((1,)), layer])
        model.compile(keras.optimizers.SGD(1.0), loss=lambda labels, predictions: -predictions)
        return model

    def keras(self) -> Any:
        return tf.keras

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        ones = tf.ones((batch_size, 1))
        return tf.data.Dataset.from_tensors((ones, ones)).repeat()

    def callbacks(self) -> list[Any]:
        files = f"{self.parameters['folder']}/{{epoch}}-{{batch}}.weights.h5"
        saving = self.keras().callbacks.ModelCheckpoint
        return [saving(files, save_freq=self.parameters["saveFreq"], save_weights_only=True)]


class Keras3(Counted):
    def keras(self) -> Any:
        import keras

        return keras
