"""A checkpoint of Keras 3 has what layers keep in lists, dicts and sets."""

from __future__ import annotations

from pathlib import Path

from tests.worker.forked_tasks import computed

_RESTORED = """
import json, sys
import keras
import numpy as np
import tensorflow as tf
from worker.checkpoints.model_directory import ModelDirectory
from worker.checkpoints.position import Position
from worker.checkpoints.state_copy import StateCopy

layers = keras.layers


class Block(layers.Layer):
    def __init__(self):
        super().__init__()
        self.parts = [layers.Dense(3), layers.BatchNormalization()]
        self.sizes = [3, 4]  # nothing to save

    def build(self, shape):
        self.scales = {"one": [self.add_weight(shape=(3,), initializer="random_normal", trainable=False)]}

    def call(self, values, training=False):
        dense, norm = self.parts
        return norm(dense(values), training=training) * self.scales["one"][0]


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.blocks = {"a": [Block()], "b": (Block(), Block())}
        self.others = {layers.Dense(2) for _ in range(12)}
        self.late = []
        self.late.append(layers.Dense(1))

    def call(self, values, training=False):
        for block in (*self.blocks["a"], *self.blocks["b"]):
            values = block(values, training=training)
        values = sum(layer(values) for layer in self.others)
        return self.late[0](values)


def made(seed):
    keras.utils.set_random_seed(seed)
    model = Model()
    model.compile("sgd", "mse")
    model(x)
    return model


x = np.random.RandomState(1).randn(16, 3).astype("float32") + 2
trained, fresh = made(1), made(2)
trained.fit(x, x[:, :1], epochs=2, verbose=0)
StateCopy.of(trained, Position(1)).write(sys.argv[1] + "/checkpoints/ckpt-1")
differ = [not np.array_equal(*pair) for pair in zip(trained.get_weights(), fresh.get_weights())]
ModelDirectory(sys.argv[1]).load(fresh, 1)
alike = np.allclose(trained(x), fresh(x), rtol=1e-4)
print(json.dumps([len(differ), sum(differ), alike]))
"""


def test_what_is_in_collections_is_saved_and_restored(tmp_path: Path) -> None:
    weights, differed, same = computed(_RESTORED, tmp_path, keras=3)
    # Of each block a kernel, a bias, four of the normalization and a scale; three layers are beside them.
    assert weights == 3 * 7 + 13 * 2
    assert differed > 3 * 4  # some begin as zeros or ones, and stay so
    assert same
