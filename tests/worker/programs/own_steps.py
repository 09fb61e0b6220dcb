"""Models of Keras 2 whose class has steps of its own. `own_steps.py NAME` trains one in one process."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

EPOCHS = 2
BATCH = 8


class Encoder(tf.keras.Model):
    """It is compiled without a loss, and its steps return some of its metrics, by other names too."""

    def __init__(self) -> None:
        super().__init__()
        self.within = tf.keras.layers.Dense(3, kernel_initializer=tf.keras.initializers.GlorotUniform(seed=1))
        self.outer = tf.keras.layers.Dense(6, kernel_initializer=tf.keras.initializers.GlorotUniform(seed=2))
        self.total = tf.keras.metrics.Mean(name="loss")
        self.squares = tf.keras.metrics.Mean(name="squares")

    @property
    def metrics(self) -> list[Any]:
        return [self.total, self.squares]

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.outer(self.within(inputs))

    def losses_of(self, inputs: Any) -> tuple[Any, Any]:
        squares = tf.reduce_sum(tf.square(inputs - self(inputs)), axis=-1)
        return squares, squares + tf.reduce_sum(tf.square(self.within(inputs)), axis=-1)

    def train_step(self, data: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            squares, losses = self.losses_of(data)
            loss = tf.reduce_sum(losses) / BATCH
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))  # noqa: B905 - Python 3.9
        self.total.update_state(losses)
        self.squares.update_state(squares)
        return {"loss": self.total.result(), "apart": self.squares.result(), "once": tf.constant(1.0)}

    def test_step(self, data: Any) -> dict[str, Any]:
        _, losses = self.losses_of(data)
        self.total.update_state(losses)
        return {"loss": self.total.result()}


class Farthest(tf.keras.Model):
    """It has a metric of its own beside the compiled ones."""

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> dict[str, Any]:
        found = dict(super().compute_metrics(x, y, y_pred, sample_weight))
        self.farthest.update_state(tf.reduce_max(tf.abs(y - y_pred), axis=-1))
        return {**found, "farthest": self.farthest.result()}


class Encoding:
    """Data in whole batches, of which each replica gets equally many examples."""

    examples = 40

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        del parameters

    def model(self) -> Any:
        model = Encoder()
        model(tf.zeros((1, 6)))
        model.compile(tf.keras.optimizers.Adam(0.05))
        return model

    def dataset(self, batch_size: int) -> Any:
        values = np.random.default_rng(4).normal(size=(self.examples, 6)).astype("float32")
        return tf.data.Dataset.from_tensor_slices(values).batch(batch_size)

    train_dataset = evaluation_dataset = dataset


class Unequal(Encoding):
    """The last batch has one example: a replica gets none."""

    examples = 33


class Measuring(Encoding):
    def model(self) -> Any:
        inputs = tf.keras.Input((6,))
        dense = tf.keras.layers.Dense(2, kernel_initializer=tf.keras.initializers.GlorotUniform(seed=3))
        model = Farthest(inputs, dense(inputs))
        model.farthest = tf.keras.metrics.Mean(name="farthest")
        model.compile(tf.keras.optimizers.SGD(0.05), "mse", metrics=["mae"])
        return model

    def dataset(self, batch_size: int) -> Any:
        return super().dataset(batch_size).map(lambda values: (values, values[:, :2]))

    train_dataset = evaluation_dataset = dataset


def main(name: str) -> None:
    program = globals()[name]({})
    model = program.model()
    data = program.dataset(BATCH)
    history = model.fit(data, validation_data=data, epochs=EPOCHS, verbose=0).history
    print(json.dumps({name: values[-1] for name, values in history.items()}))


if __name__ == "__main__":
    main(sys.argv[1])
