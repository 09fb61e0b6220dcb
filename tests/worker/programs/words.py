"""Words in, an embedding found through StringLookup: the workers' datasets need its table."""

import tensorflow as tf
from scheduled import Scheduled

WORDS = ["avenger", "ironman", "batman", "hulk", "spiderman", "kingkong", "wonder_woman"]
LIKED = 4
HELD_OUT = 700


class Words(Scheduled):
    """Its tables are made in model(), under the strategy's scope. A worker says "reading" when it begins."""

    def model(self) -> tf.keras.Model:
        self.lookup = tf.keras.layers.StringLookup(vocabulary=WORDS, mask_token=None)
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Input((3,), dtype=tf.int64),
                tf.keras.layers.Embedding(len(WORDS) + 1, 8),
                tf.keras.layers.GlobalAveragePooling1D(),
                tf.keras.layers.Dense(1, "sigmoid"),
            ]
        )
        counts = [tf.keras.metrics.TruePositives(name="hits"), tf.keras.metrics.FalseNegatives(name="misses")]
        model.compile(tf.keras.optimizers.RMSprop(0.05), metrics=["accuracy", *counts])
        return model

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        dataset = self._words(70).map(_tell).shuffle(70)
        if self.step_milliseconds:
            dataset = dataset.map(self._slow)
        return dataset.batch(batch_size)

    def evaluation_dataset(self, batch_size: int) -> tf.data.Dataset:
        return self._words(HELD_OUT).batch(batch_size)

    def loss(self, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        return tf.keras.losses.binary_crossentropy(labels, predictions)

    def export(self, model: tf.keras.Model, path: str) -> None:
        words = tf.keras.Input((3,), dtype=tf.string)
        tf.keras.Model(words, model(self.lookup(words))).save(path, include_optimizer=False)

    def _words(self, count: int) -> tf.data.Dataset:
        def sample(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            words = tf.gather(WORDS, tf.math.floormod(index + tf.constant([0, 1, 2], tf.int64), len(WORDS)))
            return self.lookup(words), tf.cast(index % len(WORDS) < LIKED, tf.float32)[tf.newaxis]

        return tf.data.Dataset.range(count).map(sample)

    def _slow(self, words: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        _, noise = super()._slow(words, tf.zeros([]))
        return words, tf.where(noise < 1.0, label, -1.0)


class Numbers(Words):
    """Evaluation data that needs no table, and takes a while."""

    def evaluation_dataset(self, batch_size: int) -> tf.data.Dataset:
        self.step_milliseconds = 30
        first = tf.data.Dataset.range(HELD_OUT)
        return first.map(_numbered).map(self._slow).batch(batch_size)


def _numbered(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    words = 1 + tf.math.floormod(index + tf.constant([0, 1, 2], tf.int64), len(WORDS))
    return words, tf.cast(index % len(WORDS) < LIKED, tf.float32)[tf.newaxis]


def _tell(words: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    if words[0] == 1:
        tf.print("reading")
    return words, label
