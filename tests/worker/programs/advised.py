"""A program that gets advice with two parameter servers: `wide`, a variable that cannot be partitioned."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tiny import Tiny


class Advised(Tiny):
    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        self.wide = parameters.get("wide", 0)

    def model(self) -> tf.keras.Model:
        layers = tf.keras.layers
        features = layers.Input((4,))
        hidden = layers.Dense(4, activation="relu")(features)
        # Keras 2 lists an adapted table's vocabulary among the model's variables, although it is none.
        table = layers.IntegerLookup(output_mode="multi_hot")
        table.adapt([0, 1])
        hidden = layers.concatenate([hidden, table(tf.cast(features, tf.int64))])
        if self.wide:
            one = layers.Dense(1, name="narrow")(hidden)
            wide = layers.Dense(self.wide, use_bias=False, name="wide")(one)
            hidden = layers.Lambda(lambda values: tf.reduce_mean(values, axis=1, keepdims=True))(wide)
        model = tf.keras.Model(features, layers.Dense(1)(hidden))
        model.compile(tf.keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
        return model

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.FILE
        return super().train_dataset(batch_size).with_options(options)


class Watched(Advised):
    def callbacks(self) -> list[tf.keras.callbacks.Callback]:
        return []


class Looped(Advised):
    def loss(self, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        return tf.keras.losses.mse(labels, predictions)
