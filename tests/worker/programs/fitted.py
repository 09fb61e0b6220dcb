"""Tiny with fixed first weights and data in a fixed order, so that two runs can be compared."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tiny import Tiny


class Fitted(Tiny):
    """`callbacks`: "batch", "terminating", "predicting" or none.

    `shape`: "single", "fixed", "scalar", "unbatched" or none. `xla`: whether XLA is to compile the steps.
    """

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        self.chosen = parameters.get("callbacks", "")
        self.shape = parameters.get("shape", "")
        self.xla = parameters.get("xla")

    def model(self) -> tf.keras.Model:
        layers = tf.keras.layers
        if self.shape == "single":
            inputs = tf.keras.Input(batch_shape=(4,))
            outputs = layers.Lambda(lambda x: 2.0 * x)(inputs)
        elif self.shape == "fixed":
            inputs = tf.keras.Input((4,), batch_size=7)
            outputs = layers.Dense(1)(inputs)
        elif self.shape == "scalar":
            inputs = tf.keras.Input((4,))
            outputs = layers.Lambda(tf.reduce_mean)(layers.Dense(1)(inputs))
        else:
            inputs = tf.keras.Input((4,))
            hidden = layers.Dense(self.width, "tanh", kernel_initializer=_fixed(4, self.width))(inputs)
            outputs = layers.Dense(1, kernel_initializer=_fixed(self.width, 1))(hidden)
        model = tf.keras.Model(inputs, outputs)
        model.compile(
            tf.keras.optimizers.Adam(0.01), "mse", metrics=["mae", always_one], jit_compile=self.xla
        )
        return model

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        samples = self._samples()
        if self.shape == "unbatched":
            return samples.map(lambda features, label: (features, tf.reshape(label, [1])))
        return (samples.map(self._slow) if self.step_milliseconds else samples).batch(batch_size)

    def callbacks(self) -> list[Any]:
        if self.chosen == "batch":
            return [EveryBatch()]
        if self.chosen == "predicting":
            return [Predicting()]
        if self.chosen == "terminating":
            return [tf.keras.callbacks.TerminateOnNaN()]
        return []


def always_one(labels: Any, predictions: Any) -> Any:
    """A metric whose mean over any examples is 1."""
    return tf.ones_like(predictions)[:, 0]


class EveryBatch(tf.keras.callbacks.Callback):
    """Prints the batches that it is called for."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        print("batch", batch, flush=True)


class Predicting(tf.keras.callbacks.Callback):
    """Predicts after each epoch, by the model itself and then by Keras."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        features = tf.ones((2, 4))
        print("by itself", self.model(features, training=False).shape, flush=True)
        print("by Keras", self.model.predict(features, verbose=0).shape, flush=True)


def _fixed(rows: int, columns: int) -> Any:
    """Keras initializers differ between its versions, whatever their seed."""
    values = tf.reshape(tf.sin(tf.range(rows * columns, dtype=tf.float32)), (rows, columns))
    return lambda shape, dtype=None: tf.cast(values, dtype or tf.float32)
