"""A classifier of phrases: a subclassed model, a lookup table that is made in model(), metrics and validation
data. Its weights begin at fixed values. By tf_keras, and by Keras 3.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

WORDS = ("river", "stone", "cloud", "grass", "ember", "frost")
EXAMPLES, HELD_OUT = 600, 130


class Phrases:
    """Parameter `pace`: a file with the seconds to wait after each step."""

    keras: Any = tf.keras

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.pace = Path(parameters["pace"])

    def model(self) -> Any:
        layers, initializers = self.keras.layers, self.keras.initializers
        self.table = layers.StringLookup(vocabulary=list(WORDS))

        class Network(self.keras.Model):  # type: ignore[name-defined]
            def __init__(self) -> None:
                super().__init__()
                first = initializers.RandomUniform(-0.5, 0.5, seed=1)
                self.rows = layers.Embedding(len(WORDS) + 1, 4, embeddings_initializer=first)
                self.scores = layers.Dense(3, kernel_initializer=initializers.GlorotUniform(seed=2))

            def call(self, words: Any) -> Any:
                return self.scores(tf.reduce_mean(self.rows(words), axis=1))

        model = Network()
        model.compile(
            self.keras.optimizers.Adam(0.01),
            self.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        return model

    def train_dataset(self, batch_size: int) -> Any:
        return self._examples(EXAMPLES, 3).shuffle(EXAMPLES, seed=4).batch(batch_size).map(self._numbers)

    def evaluation_dataset(self, batch_size: int) -> Any:
        return self._examples(HELD_OUT, 5).batch(batch_size).map(self._numbers)

    def callbacks(self) -> list[Any]:
        wait = self.keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: self._wait())
        return [wait]

    def _examples(self, count: int, seed: int) -> Any:
        picked = np.random.RandomState(seed).randint(0, len(WORDS), (count, 3))
        return tf.data.Dataset.from_tensor_slices((np.array(WORDS)[picked], picked.sum(axis=1) % 3))

    def _numbers(self, words: Any, labels: Any) -> Any:
        return self.table(words), labels

    def _wait(self) -> None:
        time.sleep(float(self.pace.read_text()))


class Phrases3(Phrases):
    keras = keras
