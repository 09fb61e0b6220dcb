"""The program of `benchmarks.data_workers`: it waits for each batch and in each step."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.data.experimental.ops.testing import sleep

FILES, EXAMPLES, FEATURES = 32, 640, 32


class Program:
    """`parameters` has `inputMicroseconds` for each batch, `stepMicroseconds`, and the folder `dataDir`."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.input_microseconds = int(parameters["inputMicroseconds"])
        self.step_microseconds = int(parameters["stepMicroseconds"])
        self.directory = Path(parameters["dataDir"])

    def model(self) -> tf.keras.Model:
        """A plane."""
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(FEATURES,))])
        model.compile(tf.keras.optimizers.SGD(0.01))
        return model

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        """Records of files, whose batches take their time."""
        files = tf.data.Dataset.from_tensor_slices(sorted(map(str, self.directory.glob("*.records"))))
        length = 4 * FEATURES
        records = files.flat_map(lambda name: tf.data.FixedLengthRecordDataset(name, length))
        batches = records.batch(batch_size).map(lambda raw: tf.io.decode_raw(raw, tf.float32))
        batches = batches.map(lambda values: tf.ensure_shape(values, [None, FEATURES]))
        if self.input_microseconds:
            batches = batches.apply(sleep(self.input_microseconds))
        return batches.map(lambda values: (values, tf.reduce_sum(values, axis=1, keepdims=True)))

    def loss(self, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        """Returns the loss of each example, after as long as a step on a device of its own takes."""
        # `take`: to look for a second element would wait again. `reduce` would cost 5 ms of a core.
        waiting = tf.data.Dataset.range(1).apply(sleep(self.step_microseconds)).take(1)
        waited = waiting.get_single_element()
        return tf.reduce_mean((labels - predictions) ** 2, axis=1) + tf.cast(waited, tf.float32)


def write(directory: Path) -> None:
    """Makes the files."""
    generator = tf.random.Generator.from_seed(1)
    for number in range(FILES):
        values = generator.uniform([EXAMPLES, FEATURES])
        (directory / f"{number}.records").write_bytes(values.numpy().tobytes())
