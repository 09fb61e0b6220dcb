"""The embedding model of TensorFlow's parameter-server tutorial: which sets of films does somebody like?

https://www.tensorflow.org/tutorials/distribute/parameter_server_training: three films in, as strings, and one
word out, "yes" or "no". The strings are looked up in the datasets, on the workers. What is learned is known
beforehand: "yes" where "avenger" is among the three.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

FILMS = ["avenger", "ironman", "batman", "hulk", "spiderman", "kingkong", "wonder_woman"]
ANSWERS = ["yes", "no"]
SAMPLES = {"train": 2_000, "evaluation": 500}
SEEDS = {"train": [1, 1], "evaluation": [2, 2]}


class Movies:
    """What the worker runtime asks of a program; the `loss` makes it the runtime's own loop."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        del parameters

    def model(self) -> tf.keras.Model:
        """Compiled. From numbers of three films, `int64[batch, 3]`, to a probability, `float32[batch, 1]`.

        Called under the strategy's scope, it makes the lookup tables too: then each worker has its own.
        """
        layers = tf.keras.layers
        self.films = layers.StringLookup(vocabulary=FILMS, mask_token=None)
        self.answers = layers.StringLookup(vocabulary=ANSWERS, num_oov_indices=0, mask_token=None)
        model = tf.keras.Sequential(
            [
                layers.Input((3,), dtype=tf.int64),
                layers.Embedding(self.films.vocabulary_size(), 20),
                layers.GlobalAveragePooling1D(),
                layers.Dense(1, activation="sigmoid"),
            ]
        )
        model.compile(tf.keras.optimizers.RMSprop(0.01), metrics=["accuracy"])
        return model

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        """One pass, shuffled anew each time. Each worker looks the films up in its own tables."""
        return self._samples("train").cache().shuffle(2_000).batch(batch_size)

    def evaluation_dataset(self, batch_size: int) -> tf.data.Dataset:
        """One pass over sets that are drawn by another seed."""
        return self._samples("evaluation").batch(batch_size)

    def loss(self, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        """Of each example, `float32[batch]`."""
        return tf.keras.losses.binary_crossentropy(labels, predictions)

    def export(self, model: tf.keras.Model, path: str) -> None:
        """A SavedModel from three strings to one, the preprocessing included."""
        numbers_to_answers = tf.keras.layers.StringLookup(
            vocabulary=ANSWERS, num_oov_indices=0, mask_token=None, invert=True
        )
        names = tf.keras.Input((3,), dtype=tf.string)
        number = tf.cast(model(self.films(names)) > 0.5, tf.int64)
        tf.keras.Model(names, numbers_to_answers(number)).save(path, include_optimizer=False)

    def _samples(self, part: str) -> tf.data.Dataset:
        """Pairs of three films' numbers, `int64[3]`, and the answer's number, `float32[1]`."""

        def numbers(films: tf.Tensor, answer: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return self.films(films), tf.cast(self.answers(answer), tf.float32)[tf.newaxis]

        return tf.data.Dataset.from_tensor_slices(drawn(part)).map(numbers)


def drawn(part: str) -> tuple[tf.Tensor, tf.Tensor]:
    """Sets of three films, `string[samples, 3]`, and the answers to them, `string[samples]`."""
    chosen = tf.random.stateless_uniform([SAMPLES[part], 3], SEEDS[part], maxval=len(FILMS), dtype=tf.int32)
    films = tf.gather(FILMS, chosen)
    return films, tf.where(tf.reduce_any(films == "avenger", axis=1), "yes", "no")
