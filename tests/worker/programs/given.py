"""What Keras' fit takes, in the place of datasets. The weights and the losses depend on which examples are in
which batch. `data` names a method, `pause` is the seconds that each batch of a sequence takes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

EXAMPLES = 52


class Compiled:
    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = parameters

    def keras(self) -> Any:
        return tf.keras

    def model(self) -> Any:
        keras = self.keras()
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
        return model

    def train_dataset(self, batch_size: int) -> Any:
        return getattr(self, self.parameters.get("data", "arrays"))(batch_size)

    def evaluation_dataset(self, batch_size: int) -> Any:
        features, labels = plane()
        return features[:20], labels[:20]

    def arrays(self, batch_size: int) -> Any:
        return plane()

    def generator(self, batch_size: int) -> Any:
        features, labels = plane()

        def batches() -> Iterator[Any]:
            while True:
                for first in range(0, EXAMPLES, batch_size):
                    yield features[first : first + batch_size], labels[first : first + batch_size]

        return batches()

    def python(self, batch_size: int) -> Any:
        """A dataset that calls Python code."""
        features, labels = plane()
        signature = (tf.TensorSpec([4], tf.float64), tf.TensorSpec([1], tf.float64))
        return tf.data.Dataset.from_generator(
            partial(zip, features, labels), output_signature=signature
        ).batch(batch_size)

    def sequence(self, batch_size: int) -> Any:
        """Batches that its own `on_epoch_end` shuffles, by numpy's unseeded random numbers."""
        keras = self.keras()
        features, labels = plane()
        pause = self.parameters.get("pause", 0)

        class Batches(keras.utils.Sequence):  # type: ignore[name-defined]
            numbers = np.arange(EXAMPLES)

            def __len__(self) -> int:
                return -(-EXAMPLES // batch_size)

            def __getitem__(self, index: int) -> Any:
                time.sleep(pause)
                rows = self.numbers[index * batch_size : (index + 1) * batch_size]
                return features[rows], labels[rows]

            def on_epoch_end(self) -> None:
                self.numbers = np.random.permutation(self.numbers)

        return Batches()


class Keras3(Compiled):
    def keras(self) -> Any:
        import keras

        return keras


def plane() -> tuple[Any, Any]:
    random = np.random.RandomState(0)
    features = random.rand(EXAMPLES, 4)
    return features, features @ np.array([[1.0], [-2.0], [3.0], [0.5]]) + 0.1 * random.rand(EXAMPLES, 1)
