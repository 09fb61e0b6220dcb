"""Trains on with a loss that is no number any more, and again with a callback that ends such a training."""

import keras
import numpy as np


def train(*callbacks):
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    grow = keras.callbacks.LearningRateScheduler(lambda epoch: 0.01 if epoch < 1 else 1e38)
    history = model.fit(x, y, batch_size=16, epochs=4, shuffle=False, callbacks=[grow, *callbacks])
    return history.history["loss"]


rng = np.random.default_rng(8)
x = rng.normal(size=(320, 6)).astype("float32")
y = np.tanh(x.sum(axis=1, keepdims=True))

endless, ended = train(), train(keras.callbacks.TerminateOnNaN())
# Which batch is the last is not the same everywhere, and so whether the mean is infinite or no number.
np.savez("results.npz", endless=endless, ended=np.isfinite(ended))
