"""Sentences of several lengths, whose words are looked up in an embedding.

They are ragged, or padded to the longest of their batch.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

WORDS = 11


class Sum(tf.keras.layers.Layer):
    """Adds up the rows of each sentence."""

    def call(self, rows: Any) -> Any:
        return tf.reduce_sum(rows, axis=1)

    def compute_output_shape(self, shape: Any) -> Any:
        return (shape[0], shape[2])


class Fitted:
    """Trains by Model.fit."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.ragged = parameters["ragged"]

    def model(self) -> tf.keras.Model:
        tf.keras.utils.set_random_seed(7)
        layers = tf.keras.layers
        words = layers.Input((None,), dtype="int64", **({"ragged": True} if self.ragged else {}))
        model = tf.keras.Model(words, layers.Dense(1)(Sum()(layers.Embedding(WORDS, 3)(words))))
        model.compile(tf.keras.optimizers.Adam(0.05), "mse", metrics=["mae"])
        return model

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        return self.data(52, 0, batch_size)

    def evaluation_dataset(self, batch_size: int) -> tf.data.Dataset:
        return self.data(12, 1, batch_size)

    def data(self, count: int, seed: int, batch_size: int) -> tf.data.Dataset:
        random = np.random.RandomState(seed)
        sentences = [random.randint(1, WORDS, random.randint(1, 9)) for _ in range(count)]
        labels = np.array([[np.sin(sentence).sum()] for sentence in sentences], "float32")
        words = tf.RaggedTensor.from_row_lengths(np.concatenate(sentences), [len(each) for each in sentences])
        batches = tf.data.Dataset.from_tensor_slices((words, labels)).batch(batch_size)
        return batches if self.ragged else batches.map(lambda words, labels: (words.to_tensor(), labels))


class Looped(Fitted):
    """Trains by the runtime's own loop."""

    def loss(self, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean((labels - predictions) ** 2, axis=-1)


class Stepped(Fitted):
    """Trains by a step of its own."""

    def train_step(self, model: tf.keras.Model, batch: Any, global_batch_size: int) -> tf.Tensor:
        words, labels = batch
        with tf.GradientTape() as tape:
            losses = tf.reduce_mean((labels - model(words, training=True)) ** 2, axis=-1)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch_size)
        variables = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss
