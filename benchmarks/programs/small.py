"""A small model and its data, the same for the runtime (`ByLoss`, `ByFit`) and for the scripts in `tutorial`.

Small, so that what a step costs beyond its arithmetic is what is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

GLOBAL_BATCH_SIZE = 32


def build_model() -> Any:
    """From `float32[batch, 8]` to `float32[batch, 1]`, with its optimizer compiled in."""
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Dense(16, activation="relu", input_shape=(8,)), layers.Dense(1)])
    model.compile(tf.keras.optimizers.Adam(), metrics=["mae"])
    return model


def samples() -> Any:
    """2,048 of a plane, one by one: `float32[8]` and `float32[1]`."""
    features = tf.random.stateless_uniform([2048, 8], seed=[1, 2])
    labels = tf.reduce_sum(features, axis=1, keepdims=True)
    return tf.data.Dataset.from_tensor_slices((features, labels)).shuffle(2048)


class Wide:
    """Trained by Model.fit: an embedding of 50,000 rows, of which a batch needs at most 128."""

    keras: Any = tf.keras

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        pass

    def model(self) -> Any:
        """From `int64[batch, 4]` to `float32[batch, 1]`."""
        layers = self.keras.layers
        model = self.keras.Sequential(
            [
                self.keras.Input((4,), dtype="int64"),
                layers.Embedding(50_000, 32),
                layers.Flatten(),
                layers.Dense(16, activation="relu"),
                layers.Dense(1),
            ]
        )
        model.compile(self.keras.optimizers.Adam(), "mse", metrics=["mae"])
        return model

    def train_dataset(self, batch_size: int) -> Any:
        """2,048 examples once."""
        words = tf.random.stateless_uniform([2048, 4], seed=[1, 2], maxval=50_000, dtype=tf.int64)
        labels = tf.cast(words[:, :1], tf.float32) / 50_000
        dataset = tf.data.Dataset.from_tensor_slices((words, labels)).shuffle(2048)
        return dataset.batch(batch_size, drop_remainder=True)


class ByLoss:
    """Trained by a loop of the runtime's."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        pass

    def model(self) -> Any:
        """See `build_model`."""
        return build_model()

    def train_dataset(self, batch_size: int) -> Any:
        """All samples once."""
        return samples().batch(batch_size, drop_remainder=True)

    def loss(self, labels: Any, predictions: Any) -> Any:
        """Of each example."""
        return tf.reduce_mean(tf.square(labels - predictions), axis=-1)


class ByFit:
    """Trained by Model.fit."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        pass

    def model(self) -> Any:
        """See `build_model`, with a loss."""
        model = build_model()
        model.compile(model.optimizer, "mse", metrics=["mae"])
        return model

    def train_dataset(self, batch_size: int) -> Any:
        """All samples once."""
        return samples().batch(batch_size, drop_remainder=True)


class ByFitOfKeras3(ByFit):
    """The same model, of Keras 3."""

    def model(self) -> Any:
        """See `build_model`."""
        import keras

        layers = keras.layers
        model = keras.Sequential([keras.Input((8,)), layers.Dense(16, activation="relu"), layers.Dense(1)])
        model.compile(keras.optimizers.Adam(), "mse", metrics=["mae"])
        return model


class WideOfKeras3(Wide):
    """The same model, of Keras 3."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        import keras

        self.keras = keras


class _Unlocked:
    """Its updates are TensorFlow's, without the runtime's locks."""

    def model(self) -> Any:
        """See the other base class."""
        vars(tf.distribute.get_strategy().extended).pop("_update")
        return super().model()  # type: ignore[misc]


class UnlockedByFit(_Unlocked, ByFit):
    """See its bases."""


class UnlockedWide(_Unlocked, Wide):
    """See its bases."""


class UnlockedByFitOfKeras3(_Unlocked, ByFitOfKeras3):
    """See its bases."""


class UnlockedWideOfKeras3(_Unlocked, WideOfKeras3):
    """See its bases."""
