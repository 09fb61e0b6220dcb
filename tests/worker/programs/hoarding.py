"""Programs that use a GPU in a way that can be told from outside: its memory, and its precision."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tiny import Tiny


class Hoarder(Tiny):
    """Keeps `hoardMiB` of the first device's memory."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        self.mebibytes = int(parameters.get("hoardMiB", 0))
        self.kept: list[Any] = []

    def model(self) -> tf.keras.Model:
        # Without a strategy's device: that of a computation, and not that of the variables.
        device = (tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU"))[0]
        self.kept = []
        with tf.device(device.name):
            # In parts: kernels count the elements of a tensor in 32 bits.
            for begin in range(0, self.mebibytes, 1024):
                self.kept.append(tf.ones([min(1024, self.mebibytes - begin), 1 << 18]))
        return super().model()


class Precise(Tiny):
    """Computes in the `policy` of mixed precision."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        self.policy = parameters.get("policy", "float32")

    def model(self) -> tf.keras.Model:
        tf.keras.mixed_precision.set_global_policy(self.policy)
        layers, uniform = tf.keras.layers, tf.keras.initializers.GlorotUniform
        inputs = tf.keras.Input((4,))
        hidden = layers.Dense(256, "tanh", kernel_initializer=uniform(seed=1))(inputs)
        hidden = layers.Dense(256, "tanh", kernel_initializer=uniform(seed=2))(hidden)
        outputs = layers.Dense(1, dtype="float32", kernel_initializer=uniform(seed=3))(hidden)
        model = tf.keras.Model(inputs, outputs)
        model.compile(tf.keras.optimizers.SGD(0.05), "mse")
        if model.compute_dtype != self.policy.removeprefix("mixed_"):
            raise ValueError(f"the model computes in {model.compute_dtype}")
        return model

    def train_dataset(self, batch_size: int) -> tf.data.Dataset:
        return self._samples().batch(batch_size)
