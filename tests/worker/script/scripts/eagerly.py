"""Runs eagerly, with numbers that only an eager call gives, in a model that fit() builds."""

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(21)
x = np.random.default_rng(7).normal(size=(80, 6)).astype("float32")
y = x.sum(axis=1, keepdims=True)
greatest = []


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(4, activation="tanh")
        self.out = keras.layers.Dense(1)

    def call(self, inputs):
        hidden = self.hidden(inputs)
        greatest.append(float(tf.reduce_max(hidden).numpy()))
        return self.out(hidden)


model = Net()
model.compile("adam", "mse", metrics=["mae"], run_eagerly=True)
history = model.fit(x, y, batch_size=16, epochs=2, validation_split=0.2)
assert greatest
np.savez("results.npz", **history.history, **{each.path: each.numpy() for each in model.variables})
