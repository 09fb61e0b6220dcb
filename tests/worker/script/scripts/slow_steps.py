"""Two calls of fit whose steps take time, on the same model: both have epochs of the same length."""

import time

import keras
import numpy as np


class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.05)


rng = np.random.default_rng(2)
x = rng.normal(size=(1280, 4)).astype("float32")
y = x.sum(1, keepdims=True)
keras.utils.set_random_seed(7)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
results = {}
for number in range(2):
    history = model.fit(x, y, batch_size=16, epochs=1, shuffle=False, verbose=0, callbacks=[Slow()])
    results[f"loss_{number}"] = history.history["loss"]
np.savez("results.npz", *model.get_weights(), **results)
