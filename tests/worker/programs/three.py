"""Programs with `import keras`, Keras 3, whatever tf.keras is. Their weights begin at fixed values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf


class Sums:
    """The gradient of each step is 1 for the rows 0 and 3 of a table, and for a dense weight.

    Two of four labels are 1, and no prediction is above 0. The model counts its steps by itself. Each step
    applies a constraint, which changes nothing.
    """

    class Network(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.table = keras.layers.Embedding(6, 2, embeddings_initializer="zeros")
            self.dense = keras.layers.Dense(
                1, use_bias=False, kernel_initializer="zeros", kernel_constraint=lambda kernel: 1.0 * kernel
            )
            self.taken = self.add_weight(name="taken", shape=(), initializer="zeros", trainable=False)

        def call(self, words: Any, training: bool = False) -> Any:
            if training:
                self.taken.assign_add(1.0)
            rows = keras.ops.sum(self.table(words), axis=(1, 2))
            return rows + keras.ops.sum(self.dense(keras.ops.ones((1, 3))))

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = parameters

    def model(self) -> Any:
        model = self.Network()
        model.compile(
            keras.optimizers.SGD(0.5),
            lambda labels, predictions: predictions,
            metrics=[keras.metrics.FalseNegatives(name="missed"), keras.metrics.TrueNegatives(name="right")],
        )
        return model

    def train_dataset(self, batch_size: int) -> Any:
        words, labels = np.array([[0, 3]] * 4, "int32"), np.array([1, 0, 1, 0], "float32")
        return tf.data.Dataset.from_tensors((words, labels)).repeat()


class SumsByStep(Sums):
    """The same by a step of the program's own. Its metrics have no variables before it."""

    def train_step(self, model: Any, batch: Any, global_batch_size: int) -> Any:
        words, labels = batch
        with tf.GradientTape() as tape:
            predictions = model(words, training=True)
            loss = tf.reduce_sum(predictions) / global_batch_size
        model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        model.compute_metrics(words, labels, predictions)
        return loss


class Fitted:
    """A classifier, with a lookup table that is made in model(), batch normalisation and dropout."""

    words = ("river", "stone", "cloud", "grass")

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = parameters
        self.options = parameters.get("optimizer", {})

    def model(self) -> Any:
        self.table = keras.layers.StringLookup(vocabulary=list(self.words), num_oov_indices=0)
        dense = keras.layers.Dense(4, kernel_initializer=keras.initializers.GlorotUniform(seed=2))
        model = self.network(dense)
        model.compile(
            keras.optimizers.SGD(0.2, momentum=0.5, **self.options),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        return model

    def network(self, dense: Any) -> Any:
        return keras.Sequential([keras.Input((4,)), dense])

    def train_dataset(self, batch_size: int) -> Any:
        picked = np.random.RandomState(3).randint(0, 4, 29)
        words = np.array(self.words)[picked]
        rows = tf.data.Dataset.from_tensor_slices((words, picked)).batch(batch_size)
        return rows.map(lambda words, labels: (tf.one_hot(self.table(words), 4), labels))

    def evaluation_dataset(self, batch_size: int) -> Any:
        return self.train_dataset(batch_size)

    def predict_dataset(self, batch_size: int) -> Any:
        return self.train_dataset(batch_size).map(lambda features, labels: features)

    def callbacks(self) -> list[Any]:
        called: list[Any] = [Told()] if self.parameters.get("told") else []
        if folder := self.parameters.get("kept"):
            path = f"{folder}/{{epoch}}.weights.h5"
            called.append(keras.callbacks.ModelCheckpoint(path, save_weights_only=True))
            called.append(keras.callbacks.BackupAndRestore(f"{folder}/backup"))
        return called


class Told(keras.callbacks.Callback):
    """Prints the hooks that it is called for."""

    def on_train_begin(self, logs: Any = None) -> None:
        self.hooks: list[str] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.hooks.append(f"batch {batch} {sorted(logs)}")

    def on_test_end(self, logs: Any = None) -> None:
        self.hooks.append(f"test {sorted(logs)}")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        print("told", self.hooks, sorted(logs), flush=True)

    def on_train_end(self, logs: Any = None) -> None:
        (kernel,) = (value for value in self.model.get_weights() if value.ndim == 2)
        print("ended with", float(np.sum(kernel)), flush=True)


class Stepping(Fitted):
    """The model has steps of its own, which give what a metric keeps and what none does."""

    class Network(keras.Model):
        def __init__(self, dense: Any) -> None:
            super().__init__()
            self.dense = dense
            self.mean = keras.metrics.Mean(name="mean_loss")
            self.steps = keras.metrics.Sum(name="of_another_name")

        def call(self, features: Any) -> Any:
            return self.dense(features)

        def train_step(self, data: Any) -> Any:
            features, labels = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(y=labels, y_pred=self(features, training=True))
            self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
            self.mean.update_state(2.0)
            self.steps.update_state(1.0)
            means = {"mean_loss": self.mean.result()}
            return {"loss": loss, "all": means, "two": 2.0, "taken": self.steps.result()}

        def test_step(self, data: Any) -> Any:
            self.steps.update_state(1.0)
            return {"three": 3.0 * tf.ones(tf.shape(data[1])), "seen": self.steps.result()}

    def network(self, dense: Any) -> Any:
        return self.Network(dense)


class Measuring(Fitted):
    """The model has a compute_metrics() of its own."""

    class Network(keras.Model):
        def __init__(self, dense: Any) -> None:
            super().__init__()
            self.dense = dense
            self.batches = keras.metrics.Sum(name="batches")

        def call(self, features: Any) -> Any:
            return self.dense(features)

        def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            self.batches.update_state(1.0)
            return {**super().compute_metrics(x, y, y_pred, sample_weight), "two": 2.0}

    def network(self, dense: Any) -> Any:
        return self.Network(dense)


class TwoOptimizers(Fitted):
    """A step of the program's own with an optimizer more than the model's. The last batch has one example."""

    def model(self) -> Any:
        model = super().model()
        model.second = keras.optimizers.Adagrad(0.1)
        return model

    def train_step(self, model: Any, batch: Any, global_batch_size: int) -> Any:
        features, labels = batch
        with tf.GradientTape() as tape:
            logits = model(features)
            losses = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
            loss = tf.reduce_sum(losses) / global_batch_size
        kernel, bias = model.trainable_variables
        gradients = tape.gradient(loss, [kernel, bias])
        model.optimizer.apply(gradients[:1], [kernel])
        model.second.apply(gradients[1:], [bias])
        model.compute_metrics(features, labels, logits)
        return loss

    def train_dataset(self, batch_size: int) -> Any:
        return super().train_dataset(1).unbatch().take(25).batch(batch_size)


class ByHand(Stepping):
    """Its step makes its loss by itself: a mean over the replica's examples."""

    class Network(Stepping.Network):
        def train_step(self, data: Any) -> Any:
            features, labels = data
            with tf.GradientTape() as tape:
                losses = keras.losses.sparse_categorical_crossentropy(
                    labels, self(features), from_logits=True
                )
                loss = tf.reduce_mean(losses)
            self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
            return {"loss": loss}


class Unmeasured(Fitted):
    """A step of the program's own, which updates no metric."""

    def train_step(self, model: Any, batch: Any, global_batch_size: int) -> Any:
        features, labels = batch
        with tf.GradientTape() as tape:
            losses = keras.losses.sparse_categorical_crossentropy(labels, model(features), from_logits=True)
            loss = tf.reduce_sum(losses) / global_batch_size
        model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss


class Dropped(Fitted):
    """The weight of each input becomes how often dropout let it through: 64 inputs of 1, a gradient of 1."""

    def model(self) -> Any:
        dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = keras.Sequential([keras.Input((64,)), keras.layers.Dropout(0.5), dense])
        model.compile(keras.optimizers.SGD(1.0), lambda labels, predictions: predictions)
        return model

    def train_dataset(self, batch_size: int) -> Any:
        ones = np.ones((batch_size, 64), "float32")
        return tf.data.Dataset.from_tensors((ones, ones[:, :1])).repeat()

    evaluation_dataset = None  # type: ignore[assignment]
