"""Programs whose weights tell how often each example was visited: those of a linear model of one-hot vectors,
which a step moves by the example's share of its batch.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from worker.contract.environment import Env


class Visited:
    """By `Model.fit` of Keras 2. `parameters` has the number of `examples`, a folder for the `weights`, and
    maybe a `seed` of their order.
    """

    keras: Any = tf.keras

    def __init__(self, parameters: dict[str, Any]) -> None:
        self._examples = int(parameters["examples"])
        self._weights = Path(parameters["weights"])
        self._seed = parameters.get("seed")

    def model(self) -> Any:
        layers = self.keras.layers
        features = self.keras.Input((self._examples,))
        outputs = layers.Dense(1, use_bias=False, kernel_initializer="zeros")(features)
        model = self.keras.Model(features, outputs)
        model.compile(optimizer=self.keras.optimizers.SGD(1.0), loss=visits)
        return model

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        dataset = tf.data.Dataset.range(self._examples).shuffle(self._examples, seed=self._seed)
        return dataset.map(lambda number: (tf.one_hot(number, self._examples), [0.0])).batch(batch_size)

    def callbacks(self) -> list[Any]:
        folder = self._weights

        class Written(self.keras.callbacks.Callback):  # type: ignore[name-defined]
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                task = f"{os.environ[Env.ROLE]}-{os.environ[Env.TASK_INDEX]}"
                np.save(folder / f"{task}-{epoch + 1}.npy", np.ravel(self.model.get_weights()[0]))

        return [Written()]


class Looped(Visited):
    """In the runtime's own loop."""

    def loss(self, labels: Any, predictions: Any) -> Any:
        return visits(labels, predictions)


class Keras3(Visited):
    """With a model of Keras 3."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        import keras

        super().__init__(parameters)
        self.keras = keras


class InPython(Visited):
    """With Python code in the data."""

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        return super().train_dataset(batch_size).map(self._by_python)

    def _by_python(self, features: Any, labels: Any) -> Any:
        return tf.numpy_function(lambda value: value, [features], tf.float32), labels


def visits(labels: Any, predictions: Any) -> Any:
    """Gives each example's loss, `[batch_size]`: the weight of its number."""
    return predictions[:, 0] + 0.0 * labels[:, 0]
