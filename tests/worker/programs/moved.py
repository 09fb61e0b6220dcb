"""Every optimizer at a time, each with a table and a matrix of its own.

The gradient of each matrix is 2 in all steps, and that of a table 1 for each look-up of a row. A step looks
up 16 rows, anywhere in the table: most are new to the optimizer. At the end the program prints how far the
farthest element of each weight is from where it began.
"""

import json
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "adadelta": ("Adadelta", {}),
    "adagrad": ("Adagrad", {}),
    "adam": ("Adam", {}),
    "adamax": ("Adamax", {}),
    "adamw": ("AdamW", {}),
    "amsgrad": ("Adam", {"amsgrad": True}),
    "average": ("Adam", {"use_ema": True}),
    "centered": ("RMSprop", {"momentum": 0.9, "centered": True}),
    "ftrl": ("Ftrl", {}),
    "lion": ("Lion", {}),
    "nadam": ("Nadam", {}),
    "rmsprop": ("RMSprop", {}),
    "rmsprop_momentum": ("RMSprop", {"momentum": 0.9}),
    "sgd": ("SGD", {}),
    "sgd_momentum": ("SGD", {"momentum": 0.9, "nesterov": True}),
}


class Moved:
    """Parameters: `keras`, 2 or 3, and the number of `rows` of a table."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.rows = parameters["rows"]
        if parameters["keras"] == 3:
            import keras

            self.keras = keras
        else:
            self.keras = tf.keras

    def model(self) -> Any:
        layers = self.keras.layers
        looked_up = self.keras.Input((4,), dtype="int32")
        outputs = []
        for name in OPTIMIZERS:
            rows = layers.Embedding(self.rows, 8, embeddings_initializer="zeros", name=f"{name}_table")(
                looked_up
            )
            dense = layers.Dense(4, kernel_initializer="zeros", use_bias=False, name=f"{name}_dense")
            outputs += [rows, dense(rows)]
        model = self.keras.Model(looked_up, outputs)
        for name, (kind, arguments) in OPTIMIZERS.items():
            setattr(model, name, getattr(self.keras.optimizers, kind)(learning_rate=0.001, **arguments))
        # It counts the steps.
        model.compile(self.keras.optimizers.SGD(0.0))
        return model

    def train_dataset(self, batch_size: int) -> Any:
        def batch(_: Any) -> Any:
            return tf.random.uniform((batch_size, 4), maxval=self.rows, dtype=tf.int32)

        dataset = tf.data.Dataset.range(1).repeat().map(batch)
        return dataset.apply(tf.data.experimental.assert_cardinality(1_000_000))

    def callbacks(self) -> list[Any]:
        class Farthest(self.keras.callbacks.Callback):  # type: ignore[name-defined]
            def on_train_end(self, logs: Any = None) -> None:
                # A table may be in several parts.
                largest_weights = {
                    layer.name: max(float(abs(weight).max()) for weight in layer.get_weights())
                    for layer in self.model.layers
                    if layer.get_weights()
                }
                print(json.dumps(largest_weights), flush=True)

        return [Farthest()]

    def train_step(self, model: Any, batch: Any, global_batch_size: int) -> Any:
        weights = {
            name: [
                *model.get_layer(f"{name}_table").trainable_weights,
                *model.get_layer(f"{name}_dense").trainable_weights,
            ]
            for name in OPTIMIZERS
        }
        with tf.GradientTape() as tape:
            loss = tf.constant(0.0)
            for name in OPTIMIZERS:
                loss += tf.reduce_sum(model.get_layer(f"{name}_table")(batch))
                loss += tf.reduce_sum(model.get_layer(f"{name}_dense")(tf.ones((2, 8))))
        gradients = tape.gradient(loss, weights)
        for name, optimizer in ((name, getattr(model, name)) for name in OPTIMIZERS):
            optimizer.apply_gradients(list(zip(gradients[name], weights[name])))  # noqa: B905 - Python 3.9
        some = model.trainable_variables[:1]
        model.optimizer.apply_gradients([(tf.zeros_like(each), each) for each in some])
        return loss
