"""A model that adds noise of the whole batch's size, as a diffusion model does it in one process."""

import keras
import numpy as np

BATCH = 16
x = np.random.normal(size=(64, 3)).astype("float32")


class Noisy(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, numbers):
        noise = keras.random.normal((BATCH, 3))
        return self.dense(numbers + noise)


model = Noisy()
model.compile("sgd", "mse")
model.fit(x, x.sum(axis=1), batch_size=BATCH, verbose=0)
