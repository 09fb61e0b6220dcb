"""Programs that run TensorFlow where notebooks do: when they are imported or made, and in each method. By
tf_keras, and by Keras 3. Without shuffling, so that each strategy must give one process' numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

PHRASES = ["the cat sat on a mat", "dogs bark at night", "the night is dark", "a mat for dogs"] * 6
WORDS = ["cat", "dogs", "mat", "night"]

tf.config.threading.set_inter_op_parallelism_threads(3)  # only before the first operation
tf.random.set_seed(1)
SCORES = tf.constant([1.0, 0.0, 0.0, 1.0] * 6)[:, tf.newaxis]
RAW = tf.data.Dataset.from_tensor_slices((tf.constant(PHRASES), SCORES))
VECTORS = tf.keras.layers.TextVectorization(max_tokens=12, output_sequence_length=6)
VECTORS.adapt(RAW.map(lambda phrase, _: phrase).batch(4))
NUMBERED = RAW.map(lambda phrase, score: (VECTORS(phrase), score, phrase)).cache()

SCALING = {module: module.layers.Normalization(axis=None) for module in (tf.keras, keras)}
for layer in SCALING.values():
    layer.adapt(tf.constant([-0.2, 0.1, 0.3]))


class Notebook:
    keras: Any = tf.keras

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        numbers = tf.range(1, 1 + len(WORDS), dtype=tf.int64)
        self.table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(WORDS, numbers), 0)
        self.weights = tf.linspace(0.5, 1.5, len(PHRASES))

    def model(self) -> Any:
        layers, initializers = self.keras.layers, self.keras.initializers
        self.lookup = layers.StringLookup(vocabulary=WORDS)
        first = initializers.RandomUniform(-0.5, 0.5, seed=1)
        model = self.keras.Sequential(
            [
                layers.Input((7,), dtype="int64"),
                layers.Embedding(20, 4, embeddings_initializer=first),
                layers.GlobalAveragePooling1D(),
                SCALING[self.keras],
                layers.Dense(1, "sigmoid", kernel_initializer=initializers.GlorotUniform(seed=2)),
            ]
        )
        model.compile(self.keras.optimizers.SGD(0.5), self.keras.losses.BinaryCrossentropy())
        return model

    def train_dataset(self, batch_size: int) -> Any:
        lengths = self.keras.layers.Normalization(axis=None)
        lengths.adapt(tf.cast(tf.strings.length(PHRASES), tf.float32))

        def element(numbers: Any, score: Any, phrase: Any) -> Any:
            last = tf.strings.split(phrase)[-1]
            number = self.table.lookup(last) + self.lookup(last)
            weight = tf.exp(lengths(tf.cast(tf.strings.length(phrase), tf.float32)))
            return tf.concat([numbers, [number]], 0), score, tf.reshape(weight, [1])

        weighed = tf.data.Dataset.zip(
            (NUMBERED.map(element), tf.data.Dataset.from_tensor_slices(self.weights))
        )
        return weighed.map(lambda given, weight: (given[0], given[1], given[2] * weight)).batch(batch_size)

    def evaluation_dataset(self, batch_size: int) -> Any:
        return self.train_dataset(batch_size)


class Notebook3(Notebook):
    keras = keras
