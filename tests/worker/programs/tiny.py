"""A linear regression on 200 samples of a plane; `fail` says where it goes wrong."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.data.experimental.ops.testing import sleep  # the one way to wait and use no processor


class Tiny:
    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.fail = parameters.get("fail", "")
        self.calls = 0
        self.step_milliseconds = parameters.get("stepMilliseconds", 0)
        self.wait_milliseconds = parameters.get("waitMilliseconds", 0)
        self.width = parameters.get("width", 4)
        if self.fail == "entrypoint":
            raise ValueError("no such data set: plane-2")

    def model(self) -> tf.keras.Model:
        if self.fail == "model":
            raise RuntimeError("this model needs a tokenizer")
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Dense(self.width, activation="relu", input_shape=(4,)),
                tf.keras.layers.Dense(1),
            ]
        )
        rate = float("nan") if self.fail == "nan" else 0.01
        model.compile(tf.keras.optimizers.Adam(rate), "mse", metrics=["mae"])
        return model

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        if self.fail == "train_dataset":
            raise FileNotFoundError("plane.csv")
        self.calls += 1
        if self.fail == "second train_dataset" and self.calls > 1:
            raise ValueError("plane-2 is read already")
        dataset = self._samples().shuffle(200)
        if self.fail == "step 57":
            dataset = dataset.enumerate().map(_checked).repeat()
        if self.step_milliseconds:
            dataset = dataset.map(self._slow)
        dataset = dataset.batch(batch_size)
        return dataset.apply(sleep(1000 * self.wait_milliseconds)) if self.wait_milliseconds else dataset

    def evaluation_dataset(self, batch_size: int) -> tf.data.Dataset:
        return self._samples().batch(batch_size)

    def _samples(self) -> tf.data.Dataset:
        features = np.stack(np.meshgrid(*[np.linspace(-1, 1, 4)] * 4), -1).reshape(-1, 4)[:200]
        labels = features @ np.array([[1.0], [-2.0], [3.0], [0.5]]) + 0.25
        return tf.data.Dataset.from_tensor_slices((features.astype("float32"), labels.astype("float32")))

    def _slow(self, features: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # About a millisecond for 300,000 sines; the factor keeps the optimizer from leaving it out.
        noise = tf.reduce_sum(tf.sin(tf.random.uniform([self.step_milliseconds * 100_000])))
        return features + 1e-20 * noise, labels


def _checked(index: tf.Tensor, sample: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    tf.debugging.assert_less(index, tf.constant(57, tf.int64), "sample 57 is damaged")
    return sample


class Loop(Tiny):
    """Trained by the runtime's own loop."""

    def loss(self, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        return tf.keras.losses.mse(labels, predictions)


class Checked(Tiny):
    """Its loss is not a number from the first step on, and is looked at."""

    def model(self) -> tf.keras.Model:
        model = super().model()
        model.compile("sgd", lambda labels, predictions: self._checked_loss(labels, predictions))
        return model

    def _checked_loss(self, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        loss = tf.reduce_mean((labels - predictions) ** 2, axis=-1) * float("nan")
        return tf.debugging.check_numerics(loss, "the loss is not a number")


class CheckedLoop(Checked):
    def loss(self, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        return self._checked_loss(labels, predictions)


class Huge(Tiny):
    """A step needs 256 TiB at once: more addresses than a process of x86-64 has, whatever the kernel grants
    (vm.overcommit_memory).
    """

    def loss(self, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        noise = tf.random.uniform([1 << 23, 1 << 23]) * tf.reduce_sum(predictions)
        return tf.keras.losses.mse(labels, predictions) + 0 * tf.reduce_max(noise)


class SlowExport(Tiny):
    """Waits, while exporting, for a file beside the model directory."""

    def export(self, model: tf.keras.Model, path: str) -> None:
        print("exporting", flush=True)
        go_on = Path(path).parent.parent / "go-on"
        while not go_on.exists():
            time.sleep(0.05)
        model.save(path)
