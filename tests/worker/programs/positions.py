"""Its loss tells which examples an epoch has trained: the mean of the squares of their numbers.

Its weights stay zero. An example's loss is the square of its number, in thousands.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.data.experimental.ops.testing import sleep


class Compiled:
    """Parameters: `examples`; `data`, a method's name; `wait`, seconds after each execution; `pause`,
    milliseconds for each batch; `folder`, with files of numbers.
    """

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = parameters

    def model(self) -> Any:
        keras = self.keras()
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
        model.compile(
            keras.optimizers.SGD(0.0), loss=lambda labels, predictions: self.squares(labels, predictions)
        )
        return model

    def keras(self) -> Any:
        return tf.keras

    @staticmethod
    def squares(labels: Any, predictions: Any) -> Any:
        return tf.reshape(labels, [-1]) ** 2 + 0.0 * tf.reshape(predictions, [-1])

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        examples = self.parameters["examples"]
        numbers = getattr(self, self.parameters.get("data", "plain"))(
            tf.data.Dataset.range(examples), examples
        )

        def pair(number: Any) -> Any:
            value = tf.reshape(tf.cast(number, tf.float32) / 1000.0, [1])
            return value, value

        dataset = numbers.map(pair).batch(batch_size)
        pause = self.parameters.get("pause", 0)
        return dataset.apply(sleep(1000 * pause)) if pause else dataset.prefetch(2)

    def plain(self, numbers: Any, examples: int) -> Any:
        return numbers

    def shuffled(self, numbers: Any, examples: int) -> Any:
        return numbers.shuffle(examples)

    def filtered(self, numbers: Any, examples: int) -> Any:
        return numbers.shuffle(examples).filter(lambda number: number % 10 != 3)

    def repeated(self, numbers: Any, examples: int) -> Any:
        return numbers.shuffle(examples).repeat()

    def paired(self, numbers: Any, examples: int) -> Any:
        doubled = numbers.map(lambda number: 2 * number)
        return tf.data.Dataset.zip((doubled, numbers)).map(lambda twice, number: twice - number).shuffle(50)

    def own(self, numbers: Any, examples: int) -> Any:
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        return numbers.shuffle(examples).with_options(options)

    def reordered(self, numbers: Any, examples: int) -> Any:
        def part(first: Any) -> Any:
            slowness = tf.where(first == 0, tf.constant(1000, tf.int64), 0)
            return tf.data.Dataset.range(first, examples, 4).apply(sleep(slowness))

        return tf.data.Dataset.range(4).interleave(
            part, cycle_length=4, num_parallel_calls=4, deterministic=False
        )

    def lines(self, numbers: Any, examples: int) -> Any:
        names = sorted(str(path) for path in Path(self.parameters["folder"]).glob("*.txt"))
        files = tf.data.Dataset.from_tensor_slices(names).shuffle(len(names))
        lines = files.interleave(tf.data.TextLineDataset, cycle_length=2)
        return lines.shuffle(20).map(lambda line: tf.strings.to_number(line, tf.int64))

    def callbacks(self) -> list[Any]:
        wait = self.parameters["wait"]
        hooks = [
            self.keras().callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(wait))
        ]
        return hooks if wait else []


class Keras3(Compiled):
    def keras(self) -> Any:
        import keras

        return keras


class Looped(Compiled):
    def loss(self, labels: Any, predictions: Any) -> Any:
        return self.squares(labels, predictions)


class Stepped(Compiled):
    def train_step(self, model: Any, batch: Any, global_batch_size: int) -> Any:
        features, labels = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(self.squares(labels, model(features, training=True))) / global_batch_size
        variables = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        for metric in model.metrics:
            metric.update_state(self.squares(labels, labels))
        return loss
