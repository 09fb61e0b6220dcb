"""Models that keep a GPU busy, trained by the runtime as `accelerated:Program`, or by hand.

`accelerated.py MODEL BATCH STEPS EPOCHS SIZE INPUT` prints `first step at SECONDS`, `epoch N at SECONDS`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

CLASSES = 1000
WORDS = 16_384
SIZES = {"whole": (224, 128, 768, 12), "tiny": (32, 16, 32, 2)}
"""Of an image, of a sequence, of a token's vector, and the number of layers: BERT's base, of 110 million
parameters with WORDS.
"""


class Program:
    """`model`: resnet or transformer; `size`: whole, or tiny, where the first is a single convolution;
    `input`: constant, or mapped, whose images the processor makes anew for each batch.
    """

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.kind = parameters["model"]
        self.image, self.length, self.width, self.layers = SIZES[parameters["size"]]
        self.is_tiny = parameters["size"] == "tiny"
        self.maps = parameters["input"] == "mapped"

    def model(self) -> Any:
        """A compiled model, of Keras 2 or 3."""
        model = self._resnet() if self.kind == "resnet" else self._transformer()
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.Adam(1e-4), loss)
        return model

    def train_dataset(self, batch_size: int) -> Any:
        """The same batch for ever, or one that is made anew."""
        generator = tf.random.Generator.from_seed(1)
        if self.kind == "transformer":
            words = generator.uniform([batch_size, self.length], 0, WORDS, tf.int32)
            return tf.data.Dataset.from_tensors((words, words)).repeat()
        shape = [batch_size, self.image, self.image, 3]
        images = tf.cast(generator.uniform(shape, 0, 256, tf.int32), tf.uint8)
        labels = generator.uniform([batch_size], 0, CLASSES, tf.int32)
        if not self.maps:
            return tf.data.Dataset.from_tensors((images, labels)).repeat()
        dataset = tf.data.Dataset.from_tensor_slices((images, labels)).repeat().enumerate()
        # The order is that of the numbers, whoever makes them.
        return dataset.map(self._augmented, num_parallel_calls=2).batch(batch_size).prefetch(2)

    def _augmented(self, number: Any, example: Any) -> tuple[Any, Any]:
        image, label = example
        seed = tf.stack([number, tf.constant(1, tf.int64)])
        side = int(self.image * 0.9)
        cropped = tf.image.stateless_random_crop(image, [side, side, 3], seed)
        resized = tf.image.resize(cropped, [self.image, self.image], "bicubic")
        return tf.cast(tf.clip_by_value(resized, 0, 255), tf.uint8), label

    def _resnet(self) -> Any:
        inputs = tf.keras.Input((self.image, self.image, 3), dtype="uint8")
        scaled = tf.keras.layers.Rescaling(1 / 255)(inputs)
        if self.is_tiny:
            convolved = tf.keras.layers.Conv2D(4, 3, 2)(scaled)
            pooled = tf.keras.layers.GlobalAveragePooling2D()(convolved)
            return tf.keras.Model(inputs, tf.keras.layers.Dense(CLASSES)(pooled))
        shape = (self.image, self.image, 3)
        body = tf.keras.applications.ResNet50(
            weights=None, input_shape=shape, classes=CLASSES, classifier_activation=None
        )
        return tf.keras.Model(inputs, body(scaled))

    def _transformer(self) -> Any:
        layers = tf.keras.layers
        inputs = tf.keras.Input((self.length,), dtype="int32")
        x = layers.Embedding(WORDS, self.width)(inputs)
        for _ in range(self.layers):
            heads = max(1, self.width // 64)
            attended = layers.MultiHeadAttention(heads, self.width // heads)(x, x)
            x = layers.LayerNormalization()(layers.Add()([x, attended]))
            hidden = layers.Dense(4 * self.width, activation="gelu")(x)
            x = layers.LayerNormalization()(layers.Add()([x, layers.Dense(self.width)(hidden)]))
        return tf.keras.Model(inputs, layers.Dense(WORDS)(x))


def by_hand(kind: str, batch: int, steps: int, epochs: int, size: str, source: str) -> None:
    """Calls a tf.function for each step, as TensorFlow's guide to loops "from scratch" does."""
    program = Program({"model": kind, "size": size, "input": source})
    model = program.model()
    optimizer, loss_of = model.optimizer, model.loss

    @tf.function(reduce_retracing=True)
    def step(features: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(features, training=True))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    dataset = program.train_dataset(batch)
    if tf.config.list_physical_devices("GPU"):
        dataset = dataset.apply(tf.data.experimental.prefetch_to_device("/gpu:0"))
    batches = iter(dataset)
    for epoch in range(epochs):
        for number in range(steps):
            loss = step(*next(batches))
            if epoch == number == 0:
                float(loss)
                print(f"first step at {time.time():.3f}", flush=True)
        float(loss)  # waits for the device
        print(f"epoch {epoch + 1} at {time.time():.3f}", flush=True)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    _, chosen, examples, number, times, how_large, where_from = sys.argv
    by_hand(chosen, int(examples), int(number), int(times), how_large, where_from)
