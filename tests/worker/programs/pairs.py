"""A loss over the pairs of a batch, of a replica's own examples or of all."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

EXAMPLES = 48


class Pairs:
    """By Keras 2."""

    keras: Any = tf.keras

    def __init__(self, parameters: dict[str, Any]) -> None:
        """Needs no parameter of its own."""

    def model(self) -> Any:
        layers, initializer = self.keras.layers, self.keras.initializers.GlorotUniform(seed=1)
        model = self.keras.Sequential(
            [self.keras.Input((6,)), layers.Dense(4, activation="tanh", kernel_initializer=initializer)]
        )
        model.compile(self.keras.optimizers.SGD(0.5))
        return model

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        features = np.random.RandomState(0).randn(EXAMPLES, 6).astype(np.float32)
        pairs = tf.data.Dataset.from_tensor_slices((features, np.arange(EXAMPLES) // 2))
        return pairs.batch(batch_size, drop_remainder=True)

    def loss(self, labels: Any, predictions: Any) -> Any:
        others = self.others(predictions)
        same = tf.cast(labels[:, None] == self.others(labels)[None, :], tf.float32)
        logits = tf.matmul(predictions, others, transpose_b=True)
        return -tf.reduce_sum(same * tf.nn.log_softmax(logits), axis=1)

    def others(self, values: Any) -> Any:
        return values


class Gathered(Pairs):
    def others(self, values: Any) -> Any:
        context = tf.distribute.get_replica_context()
        return values if context is None else context.all_gather(values, axis=0)


class Gathered3(Gathered):
    """With a model of Keras 3."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        import keras

        super().__init__(parameters)
        self.keras = keras
