"""Programs that write down what they have trained: each weight, after every epoch, to a file."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

SAMPLES = 400
CLASSES = 5


class Remembered:
    """Trained by Model.fit. Parameter `weights`: the file, of NumPy's npz; `kept`: of ModelCheckpoint's."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.weights = parameters.get("weights", "")
        self.kept = parameters.get("kept", "")

    def model(self) -> tf.keras.Model:
        layers = tf.keras.layers
        model = tf.keras.Sequential(
            [
                layers.Input((8,)),
                layers.Dense(32, "relu"),
                layers.BatchNormalization(),
                layers.Dense(CLASSES),
            ]
        )
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
        return model

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        return _samples().batch(batch_size)

    def callbacks(self) -> list[Any]:
        kept = [tf.keras.callbacks.ModelCheckpoint(self.kept, save_weights_only=True)] if self.kept else []
        return [Remembering(self.weights), *kept]


class Looped(Remembered):
    """Trained by the runtime's own loop."""

    def loss(self, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        return tf.keras.losses.sparse_categorical_crossentropy(labels, predictions, from_logits=True)


class Remembering(tf.keras.callbacks.Callback):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._supports_tf_logs = True
        self._path = path

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        np.savez(self._path, *weights(self.model))


def weights(model: tf.keras.Model) -> list[np.ndarray[Any, Any]]:
    """Layer by layer. Model.get_weights gives the pieces of partitioned variables, in another order."""
    names = ("kernel", "gamma", "beta", "moving_mean", "moving_variance", "bias")
    return [
        np.asarray(tf.convert_to_tensor(getattr(layer, name)))
        for layer in model.layers
        for name in names
        if getattr(layer, name, None) is not None
    ]


def score(model: tf.keras.Model) -> float:
    """Its accuracy."""
    features, labels = next(iter(_samples().batch(SAMPLES)))
    return float(np.mean(np.argmax(model(features, training=False), -1) == labels.numpy()))


def _samples() -> tf.data.Dataset:
    features = np.random.RandomState(3).uniform(-1, 1, (SAMPLES, 8)).astype("float32")
    labels = np.argmax(features[:, :CLASSES] + features[:, 3:8], -1)
    return tf.data.Dataset.from_tensor_slices((features, labels))
