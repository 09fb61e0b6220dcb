"""Datasets of 100 samples that end earlier than expected."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tiny import Tiny

SAMPLES = 100


class Short(Tiny):
    """`source`: read once, nothing, endless, or unknown size."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        self.source = parameters["source"]

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        samples = self._samples().take(SAMPLES)
        if self.source == "read once":
            samples = self._read_once()
        elif self.source == "nothing":
            samples = samples.filter(lambda features, _: features[0] > 2.0)
        elif self.source == "unknown size":
            samples = samples.filter(lambda features, _: features[0] < 2.0)
        elif self.source == "endless":
            samples = samples.repeat()
        return samples.batch(batch_size)

    def _read_once(self) -> tf.data.Dataset:
        once = self._drawn()
        signature = (tf.TensorSpec((4,), tf.float32), tf.TensorSpec((1,), tf.float32))
        return tf.data.Dataset.from_generator(lambda: once, output_signature=signature)

    def _drawn(self) -> Iterator[tuple[Any, Any]]:
        for _ in range(SAMPLES):
            yield np.zeros(4, "float32"), np.zeros(1, "float32")
