"""A model of Keras 3 of tables whose rows are looked up. `rows` and `width` are those of the larger table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf


class Tables:
    """Two tables, one of which is read whole at the end as well, and a matrix. The norms of the first table's
    rows and of the matrix' columns are limited. Parameter `optimizer`: a class's name and its arguments.
    """

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.rows, self.width = parameters.get("rows", 300), parameters.get("width", 4)
        self.optimizer, self.options = parameters.get("optimizer", ["Adam", {"learning_rate": 0.01}])

    def model(self) -> Any:
        layers, seeded = keras.layers, keras.initializers.RandomUniform
        users, words = (
            keras.Input((), dtype="int64", name="user"),
            keras.Input((3,), dtype="int32", name="words"),
        )
        user = layers.Embedding(
            self.rows,
            self.width,
            embeddings_initializer=seeded(seed=1),
            embeddings_constraint=keras.constraints.MaxNorm(0.05, axis=1),
            name="of_users",
        )(users)
        table = layers.Embedding(20, self.width, embeddings_initializer=seeded(seed=2), name="of_words")
        word = layers.GlobalAveragePooling1D()(table(words))
        hidden = layers.Dense(
            self.width,
            "tanh",
            kernel_initializer=seeded(seed=3),
            kernel_regularizer="l2",
            kernel_constraint=keras.constraints.MaxNorm(0.1),
            name="hidden",
        )(layers.Concatenate()([user, word]))
        model = keras.Model({"user": users, "words": words}, Tied(table)(hidden))
        optimizer = getattr(keras.optimizers, self.optimizer)(**self.options)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, metrics=["accuracy"])
        return model

    def train_dataset(self, batch_size: int) -> Any:
        return self.examples(240).batch(batch_size)

    def evaluation_dataset(self, batch_size: int) -> Any:
        return self.examples(40).batch(batch_size)

    def predict_dataset(self, batch_size: int) -> Any:
        return self.examples(40).map(lambda features, label: (features, features["user"])).batch(batch_size)

    def examples(self, count: int) -> Any:
        random = np.random.RandomState(7)
        users = random.randint(0, self.rows, count)
        words = random.randint(0, 20, (count, 3)).astype("int32")
        words[:, 1] -= 20  # a negative index counts from the end
        features = {"user": users.astype("int64"), "words": words}
        return tf.data.Dataset.from_tensor_slices((features, (users + words[:, 0]) % 20))


class Tied(keras.layers.Layer):
    """Multiplies by the transposed table."""

    def __init__(self, table: Any) -> None:
        super().__init__()
        self.table = table

    def call(self, values: Any) -> Any:
        return keras.ops.matmul(values, keras.ops.transpose(self.table.embeddings))


class Own(Tables):
    """By a step of the model's own, which looks at each gradient."""

    class Network(keras.Model):
        def train_step(self, data: Any) -> Any:
            features, labels = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x=features, y=labels, y_pred=self(features, training=True))
            variables = self.trainable_variables
            gradients = tape.gradient(loss, variables)
            for gradient, variable in zip(gradients, variables, strict=True):
                assert tuple(gradient.shape) == tuple(variable.shape), variable.path
            self.optimizer.apply(gradients, variables)
            return {"loss": loss}

    def model(self) -> Any:
        given = super().model()
        model = self.Network(given.inputs, given.outputs)
        model.compile(given.optimizer, given.loss)
        return model
