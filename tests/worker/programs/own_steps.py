"""Models whose class has steps of its own, of Keras 2, and where it says so of Keras 3 too.

`own_steps.py NAME PACKAGE` trains one in one process, by tf_keras or keras.
"""

from __future__ import annotations

import importlib
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
        metrics = dict(super().compute_metrics(x, y, y_pred, sample_weight))
        self.farthest.update_state(tf.reduce_max(tf.abs(y - y_pred), axis=-1))
        return {**metrics, "farthest": self.farthest.result()}


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


class OfPackage(Encoding):
    """Of the Keras whose `package` the parameters name. The last batch has one example."""

    examples = 33

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        self.keras = importlib.import_module(parameters["package"])

    def dense(self, units: int, seed: int) -> Any:
        initializer = self.keras.initializers.GlorotUniform(seed=seed)
        return self.keras.layers.Dense(units, kernel_initializer=initializer)


class WithSteps(OfPackage):
    """Its models are of a class `Stepping`, whose steps go by what its `losses_of` makes of the data."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        keras = self.keras

        class Stepping(keras.Model):  # type: ignore[name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.total = keras.metrics.Mean(name="loss")

            @property
            def metrics(self) -> list[Any]:
                return [self.total]

            def train_step(self, data: Any) -> dict[str, Any]:
                with tf.GradientTape() as tape:
                    losses = self.losses_of(data)
                    loss = tf.reduce_sum(losses) / BATCH
                variables = self.trainable_variables
                self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))  # noqa: B905
                self.total.update_state(losses)
                return {"loss": self.total.result()}

            def test_step(self, data: Any) -> dict[str, Any]:
                self.total.update_state(self.losses_of(data))
                return {"loss": self.total.result()}

        self.Stepping = Stepping


class Parts(WithSteps):
    """Its model has no call(): the steps call its parts. The data is no (features, labels)."""

    def model(self) -> Any:
        keras = self.keras

        class Coder(self.Stepping):  # type: ignore[name-defined]
            def __init__(self, encoder: Any, decoder: Any) -> None:
                super().__init__()
                self.encoder = encoder
                self.decoder = decoder

            def losses_of(self, data: Any) -> Any:
                (names,) = data["names"]
                assert names.dtype == tf.string
                decoded = self.decoder(self.encoder(data["values"]))
                return tf.reduce_sum(tf.square(data["values"] - decoded), axis=-1)

        model = Coder(self.part(6, self.dense(3, 1)), self.part(3, self.dense(6, 2)))
        model.compile(keras.optimizers.Adam(0.05))
        return model

    def part(self, inputs: int, layer: Any) -> Any:
        return self.keras.Sequential([self.keras.Input((inputs,)), layer])

    def dataset(self, batch_size: int) -> Any:
        data = super().dataset(batch_size)
        return data.map(lambda values: {"values": values, "names": (tf.as_string(values[:, 0]),)})

    train_dataset = evaluation_dataset = dataset


class Late(Parts):
    """The parts get their variables in the first step."""

    def part(self, inputs: int, layer: Any) -> Any:
        del inputs
        return self.keras.Sequential([layer])


class Divided:
    """Its train_step takes the data apart, which the model does not take as they are."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.values = Encoding(parameters)

    def train_dataset(self, batch_size: int) -> Any:
        data = self.values.dataset(batch_size)
        return data.map(lambda values: {"values": values, "labels": values[:, :2]})

    def model(self) -> Any:
        model = tf.keras.Sequential([tf.keras.Input((6,)), tf.keras.layers.Dense(2)])
        model.compile(tf.keras.optimizers.SGD(0.05))
        return model

    def train_step(self, model: Any, batch: Any, global_batch_size: int) -> Any:
        with tf.GradientTape() as tape:
            squares = tf.square(batch["labels"] - model(batch["values"], training=True))
            loss = tf.reduce_sum(squares) / global_batch_size
        variables = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))  # noqa: B905
        return loss


class DividedScored(Divided):
    def evaluation_dataset(self, batch_size: int) -> Any:
        return self.train_dataset(batch_size)


class Triplets(WithSteps):
    """A model of three inputs, which its own step takes out of a tuple of one tuple."""

    def model(self) -> Any:
        keras = self.keras

        class Siamese(self.Stepping):  # type: ignore[name-defined]
            def __init__(self, tower: Any) -> None:
                super().__init__()
                self.tower = tower

            def call(self, inputs: Any, training: bool = False) -> Any:
                anchor, near, far = (self.tower(each) for each in inputs)
                squares = (tf.square(anchor - near), tf.square(anchor - far))
                return tuple(tf.reduce_sum(each, axis=-1) for each in squares)

            def losses_of(self, data: Any) -> Any:
                (inputs,) = data
                near, far = self(inputs)
                return tf.nn.relu(near - far + 1.0)

        model = Siamese(keras.Sequential([keras.Input((6,)), self.dense(3, 1)]))
        model(tuple(tf.zeros((1, 6)) for _ in range(3)))
        model.compile(keras.optimizers.Adam(0.05))
        return model

    def dataset(self, batch_size: int) -> Any:
        return (
            super().dataset(batch_size).map(lambda values: ((values, values * 0.5, tf.reverse(values, [1])),))
        )

    train_dataset = evaluation_dataset = dataset


class Added(OfPackage):
    """All of its loss is added by a layer. It has no steps of its own."""

    def model(self) -> Any:
        keras = self.keras

        class Distance(keras.layers.Layer):  # type: ignore[name-defined]
            def call(self, inputs: Any) -> Any:
                values, decoded = inputs
                self.add_loss(tf.reduce_mean(tf.square(values - decoded)))
                return decoded

        inputs = keras.Input((6,))
        decoded = self.dense(6, 2)(self.dense(3, 1)(inputs))
        model = keras.Model(inputs, Distance()([inputs, decoded]))
        model.compile(keras.optimizers.Adam(0.05))
        return model


class Extended(OfPackage):
    """Adds a mean of its own to the compiled loss, and the root of a metric to the metrics. It has no steps
    of its own.
    """

    def model(self) -> Any:
        keras = self.keras

        class WithMean(keras.Model):  # type: ignore[name-defined]
            def compute_loss(
                self,
                x: Any = None,
                y: Any = None,
                y_pred: Any = None,
                sample_weight: Any = None,
                **options: Any,
            ) -> Any:
                loss = super().compute_loss(x, y, y_pred, sample_weight, **options)
                return loss + tf.reduce_mean(tf.square(y_pred))

            def compute_metrics(
                self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
            ) -> dict[str, Any]:
                results = super().compute_metrics(x, y, y_pred, sample_weight)
                return {**results, "rooted": tf.sqrt(results["mae"])}

        inputs = keras.Input((6,))
        model = WithMean(inputs, self.dense(6, 1)(inputs))
        model.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"])
        return model

    def dataset(self, batch_size: int) -> Any:
        return super().dataset(batch_size).map(lambda values: (values, values))

    train_dataset = evaluation_dataset = dataset


class Unmeasured(OfPackage):
    """Trained by a step of the program's: nothing says what loss an evaluation is to have."""

    def model(self) -> Any:
        model = self.keras.Sequential([self.keras.Input((6,)), self.dense(6, 1)])
        model.compile(self.keras.optimizers.SGD(0.01), metrics=["mae"])
        return model

    def dataset(self, batch_size: int) -> Any:
        return super().dataset(batch_size).map(lambda values: (values, values))

    train_dataset = evaluation_dataset = dataset

    def train_step(self, model: Any, batch: Any, global_batch_size: int) -> Any:
        values, labels = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(labels - model(values, training=True)))
        variables = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))  # noqa: B905
        return loss / 2


def main(name: str, package: str) -> None:
    program = globals()[name]({"package": package})
    model = program.model()
    data = program.dataset(BATCH)
    model.built = True  # one without call() cannot be called to see to that
    history = model.fit(data, validation_data=data, epochs=EPOCHS, verbose=0).history
    print(json.dumps({name: values[-1] for name, values in history.items()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
