"""Programs of several shapes that are evaluated and predicted with after training; `examples` is their
number.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

WORDS = ["ant", "bee", "cat", "dog"]


class Applied:
    """A linear model of 4 features; its examples are numbered, and the key is the number's double."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.examples = parameters.get("examples", 17)
        self.milliseconds = parameters.get("milliseconds", 0)
        self.units = parameters.get("units", 1)

    def model(self) -> tf.keras.Model:
        model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(self.units)])
        return self.compiled(model)

    def compiled(self, model: tf.keras.Model) -> tf.keras.Model:
        model.compile("sgd", "mse", metrics=["mae", tf.keras.metrics.RootMeanSquaredError(name="rmse")])
        return model

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        return self.numbers(64).map(lambda n: (features(n), label(n))).batch(batch_size)

    def evaluation_dataset(self, batch_size: int) -> tf.data.Dataset:
        return self.numbers(self.examples).map(lambda n: (features(n), label(n))).batch(batch_size)

    def predict_dataset(self, batch_size: int) -> tf.data.Dataset:
        return self.numbers(self.examples).map(lambda n: (features(n), 2 * n)).batch(batch_size)

    def numbers(self, count: int) -> tf.data.Dataset:
        return tf.data.Dataset.range(count)


def features(number: tf.Tensor) -> tf.Tensor:
    x = tf.cast(number, tf.float32)
    return tf.stack([tf.sin(x), tf.cos(x), tf.sin(2 * x), tf.cos(3 * x)])


def label(number: tf.Tensor) -> tf.Tensor:
    return tf.reshape(tf.reduce_sum(features(number) * [1.0, -2.0, 3.0, 0.5]), [1])


class ByLoss(Applied):
    """Trained and scored by the runtime's own loop."""

    def loss(self, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        return tf.keras.losses.mse(labels, predictions)


class Slow(Applied):
    """Predicts slowly, in graph operations only."""

    def model(self) -> tf.keras.Model:
        inputs = tf.keras.Input((4,))
        outputs = tf.keras.layers.Dense(self.units)(inputs)
        if self.milliseconds:
            # In a layer: what depends on no input would be computed once, when the model is made.
            outputs = tf.keras.layers.Lambda(self.slowly)(outputs)
        return self.compiled(tf.keras.Model(inputs, outputs))

    def slowly(self, values: tf.Tensor) -> tf.Tensor:
        return values + 1e-20 * tf.reduce_sum(tf.sin(tf.random.uniform([self.milliseconds * 100_000])))


class Subclassed(Applied):
    """A model that has no variables before it is called."""

    def model(self) -> tf.keras.Model:
        return self.compiled(_Network())


class _Network(tf.keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = tf.keras.layers.Dense(3, activation="relu")
        self.last = tf.keras.layers.Dense(1)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.last(self.hidden(inputs))


class TwoOutputs(Applied):
    """Of two inputs by name, two outputs by name; without a key."""

    def model(self) -> tf.keras.Model:
        left, right = tf.keras.Input((2,), name="left"), tf.keras.Input((2,), name="right")
        hidden = tf.keras.layers.Concatenate()([left, right])
        value = tf.keras.layers.Dense(1, name="value")(hidden)
        classes = tf.keras.layers.Dense(3, activation="softmax", name="classes")(hidden)
        model = tf.keras.Model({"left": left, "right": right}, {"value": value, "classes": classes})
        losses = {"value": "mse", "classes": "sparse_categorical_crossentropy"}
        model.compile("sgd", losses, metrics={"classes": "accuracy"})
        return model

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        return self.numbers(64).map(self.pair).batch(batch_size)

    def evaluation_dataset(self, batch_size: int) -> tf.data.Dataset:
        return self.numbers(self.examples).map(self.pair).batch(batch_size)

    def predict_dataset(self, batch_size: int) -> tf.data.Dataset:
        return self.numbers(self.examples).map(lambda n: self.pair(n)[0]).batch(batch_size)

    def pair(self, number: tf.Tensor) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        x = features(number)
        return {"left": x[:2], "right": x[2:]}, {"value": label(number), "classes": number % 3}


class Words(Applied):
    """The datasets look words up in a table that `model` makes; the key is the word."""

    def model(self) -> tf.keras.Model:
        self.lookup = tf.keras.layers.StringLookup(vocabulary=WORDS)
        model = tf.keras.Sequential(
            [
                tf.keras.Input((), dtype="int64"),
                tf.keras.layers.Embedding(len(WORDS) + 1, 2),
                tf.keras.layers.Dense(1),
            ]
        )
        return self.compiled(model)

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        return self.words(64).map(lambda n, word: (self.lookup(word), label(n))).batch(batch_size)

    def evaluation_dataset(self, batch_size: int) -> tf.data.Dataset:
        return self.words(self.examples).map(lambda n, word: (self.lookup(word), label(n))).batch(batch_size)

    def predict_dataset(self, batch_size: int) -> tf.data.Dataset:
        return self.words(self.examples).map(lambda n, word: (self.lookup(word), word)).batch(batch_size)

    def words(self, count: int) -> tf.data.Dataset:
        return self.numbers(count).map(lambda n: (n, tf.gather([*WORDS, "emu"], n % 5)))


class Shuffled(Applied):
    def predict_dataset(self, batch_size: int) -> tf.data.Dataset:
        return self.numbers(self.examples).shuffle(9).map(features).batch(batch_size)


class Endless(Applied):
    def predict_dataset(self, batch_size: int) -> tf.data.Dataset:
        return super().predict_dataset(batch_size).repeat()


class Triples(Applied):
    def predict_dataset(self, batch_size: int) -> tf.data.Dataset:
        return super().predict_dataset(batch_size).map(lambda x, key: (x, key, key))


class Scalar(Applied):
    """Its model has one output for a whole batch."""

    def model(self) -> tf.keras.Model:
        model = super().model()
        model.predict_step = lambda data: tf.reduce_sum(model(data[0]))
        return model


class Nothing:
    """Has neither data to evaluate on nor data to predict."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._applied = Applied(parameters)
        self.model = self._applied.model
        self.train_dataset = self._applied.train_dataset
