"""A linear regression by `loss`, for the coordinator's loop; `fail` says where it goes wrong."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf


class Scheduled:
    """200 samples of a plane, in their order where `ordered` is set."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.fail = parameters.get("fail", "")
        self.ordered = parameters.get("ordered", False)
        self.step_milliseconds = parameters.get("stepMilliseconds", 0)
        self.killed = parameters.get("killed", "")

    def model(self) -> tf.keras.Model:
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Dense(
                    8, "relu", input_shape=(4,), kernel_initializer=tf.keras.initializers.GlorotUniform(1)
                ),
                tf.keras.layers.Dense(1, kernel_initializer=tf.keras.initializers.GlorotUniform(2)),
            ]
        )
        rate = float("nan") if self.fail == "nan" else 0.01
        model.compile(tf.keras.optimizers.Adam(rate), metrics=["mae"])
        return model

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        dataset = samples()
        if not self.ordered:
            dataset = dataset.shuffle(200)
        if self.step_milliseconds:
            dataset = dataset.map(self._slow)
        return dataset.batch(batch_size, drop_remainder=True)

    def evaluation_dataset(self, batch_size: int) -> tf.data.Dataset:
        return samples().batch(batch_size)

    def loss(self, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        if self.fail == "step":
            sample = tf.reduce_max(tf.abs(labels))
            tf.debugging.assert_less(sample, 0.5, "a label is out of range")
        return tf.reduce_mean(tf.square(labels - predictions), axis=-1)

    def callbacks(self) -> list[tf.keras.callbacks.Callback]:
        return [Ending(Path(self.killed))] if self.killed else []

    def _slow(self, features: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # About a millisecond for 300,000 sines; the factor keeps the optimizer from leaving it out.
        noise = tf.reduce_sum(tf.sin(tf.random.uniform([self.step_milliseconds * 10_000])))
        return features, labels + 1e-20 * noise


class Ending(tf.keras.callbacks.Callback):
    """Fails as the reading of a dataset does, once there is a file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        print("waits for the file", flush=True)
        while not self.path.exists():
            time.sleep(0.05)
        raise tf.errors.OutOfRangeError(None, None, "End of sequence")


def samples() -> tf.data.Dataset:
    features = np.stack(np.meshgrid(*[np.linspace(-1, 1, 4)] * 4), -1).reshape(-1, 4)[:200]
    labels = features @ np.array([[1.0], [-2.0], [3.0], [0.5]]) + 0.25
    return tf.data.Dataset.from_tensor_slices((features.astype("float32"), labels.astype("float32")))


class Created:
    """For Model.fit: a DatasetCreator, and a first layer that a partitioner may cut up."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        del parameters

    def model(self) -> tf.keras.Model:
        model = tf.keras.Sequential(
            [tf.keras.layers.Dense(64, "relu", input_shape=(4,)), tf.keras.layers.Dense(1)]
        )
        model.compile("adam", "mse")
        return model

    def train_dataset(self, batch_size: int) -> tf.keras.utils.experimental.DatasetCreator:
        def make(context: tf.distribute.InputContext) -> tf.data.Dataset:
            return samples().repeat().batch(context.get_per_replica_batch_size(batch_size))

        return tf.keras.utils.experimental.DatasetCreator(make)

    def evaluation_dataset(self, batch_size: int) -> tf.data.Dataset:
        return samples().batch(batch_size)

    def callbacks(self) -> list[tf.keras.callbacks.Callback]:
        return [Devices()]


class Devices(tf.keras.callbacks.Callback):
    def on_train_end(self, logs: object = None) -> None:
        for variable in self.model.variables:
            print("variable", variable.name, variable.shape[0], variable.device)
