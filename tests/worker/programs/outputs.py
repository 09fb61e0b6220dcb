"""Models whose outputs Keras knows more about than their numbers, or whose inputs are no plain tensors. The
last of four batches of 16 has one example.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

layers = tf.keras.layers
EXAMPLES = 49


def drawn(seed: int, *shape: int) -> Any:
    return np.random.RandomState(seed).uniform(-1, 1, shape).astype("float32")


class Saturated:
    """Probabilities that are rounded to 0 and 1 at first: only from the logits do they have a gradient."""

    rate, loss_of_model = 1.0, "binary_crossentropy"

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        """Without parameters."""

    def model(self) -> Any:
        model = self.network()
        model.compile(tf.keras.optimizers.SGD(self.rate), self.loss_of_model, metrics=["accuracy"])
        return model

    def network(self) -> Any:
        far = tf.keras.initializers.Constant(20.0)
        return tf.keras.Sequential([layers.Input((4,)), layers.Dense(1, "sigmoid", kernel_initializer=far)])

    def rows(self, seed: int) -> Any:
        features = drawn(seed, EXAMPLES, 4)
        return features, (features[:, :1] < 0).astype("float32")

    def train_dataset(self, batch_size: int) -> Any:
        return tf.data.Dataset.from_tensor_slices(self.rows(0)).batch(batch_size)

    def evaluation_dataset(self, batch_size: int) -> Any:
        return tf.data.Dataset.from_tensor_slices(self.rows(1)).batch(batch_size)


class SaturatedClasses(Saturated):
    """The same by a softmax."""

    loss_of_model = "sparse_categorical_crossentropy"

    def network(self) -> Any:
        far = tf.keras.initializers.RandomUniform(-40, 40, seed=2)
        return tf.keras.Sequential([layers.Input((4,)), layers.Dense(3, "softmax", kernel_initializer=far)])

    def rows(self, seed: int) -> Any:
        features = drawn(seed, EXAMPLES, 4)
        return features, (np.abs(features[:, 0]) * 3).astype("int64")


class Looped(Saturated):
    """By the runtime's own loop, with a loss that takes probabilities."""

    def loss(self, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        return tf.keras.losses.binary_crossentropy(labels, predictions)


class Tagged(Saturated):
    """A tag for each word of sentences of several lengths, whose rest is masked."""

    rate, loss_of_model = 0.5, "sparse_categorical_crossentropy"

    def network(self) -> Any:
        words = layers.Embedding(
            9, 3, mask_zero=True, embeddings_initializer=tf.keras.initializers.RandomUniform(seed=4)
        )
        recurrent = layers.SimpleRNN(
            5,
            return_sequences=True,
            kernel_initializer=tf.keras.initializers.GlorotUniform(seed=1),
            recurrent_initializer=tf.keras.initializers.Orthogonal(seed=2),
        )
        tags = layers.Dense(3, "softmax", kernel_initializer=tf.keras.initializers.GlorotUniform(seed=3))
        return tf.keras.Sequential([layers.Input((7,), dtype="int64"), words, recurrent, tags])

    def rows(self, seed: int) -> Any:
        words = np.random.RandomState(seed).randint(1, 9, (EXAMPLES, 7))
        for row, length in enumerate(np.random.RandomState(seed + 1).randint(1, 8, EXAMPLES)):
            words[row, length:] = 0
        return words, words % 3


class Sparse(Saturated):
    """Features in a SparseTensor."""

    rate, loss_of_model = 0.1, "mse"

    def network(self) -> Any:
        given = layers.Input((20,), sparse=True)
        first = tf.keras.initializers.GlorotUniform(seed=1)
        return tf.keras.Model(given, layers.Dense(1, kernel_initializer=first)(given))

    def rows(self, seed: int) -> Any:
        features = drawn(seed, EXAMPLES, 20)
        features[drawn(seed + 1, EXAMPLES, 20) > -0.6] = 0
        return tf.sparse.from_dense(features), features.sum(axis=1, keepdims=True)
