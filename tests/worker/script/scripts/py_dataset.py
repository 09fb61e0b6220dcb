"""Pretrains and fine-tunes on a PyDataset that fit shuffles, and that changes its order after each epoch."""

import keras
import numpy as np

keras.utils.set_random_seed(33)


class Windows(keras.utils.PyDataset):
    """Windows of a series, and the number that follows each."""

    def __init__(self, series, length, batch_size, **kwargs):
        super().__init__(**kwargs)
        self.series, self.length, self.batch_size = series, length, batch_size
        self.starts = np.arange(len(series) - length)
        self.on_epoch_end()

    def __len__(self):
        return -(-len(self.starts) // self.batch_size)

    def __getitem__(self, index):
        starts = self.starts[index * self.batch_size : (index + 1) * self.batch_size]
        rows = starts[:, None] + np.arange(self.length)
        return self.series[rows], self.series[starts + self.length]

    def on_epoch_end(self):
        np.random.shuffle(self.starts)


series = np.sin(np.arange(150) / 5).astype("float32")
windows = Windows(series, length=10, batch_size=16)
model = keras.Sequential([keras.layers.Dense(12, activation="tanh"), keras.layers.Dense(1)])
model.compile("adam", "mse", metrics=["mae"])
first = model.fit(windows, epochs=2)
noise = np.random.normal(size=3)
model.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"])
second = model.fit(windows, epochs=4, validation_data=(series[None, :10], series[None, 10]))

np.savez(
    "results.npz",
    noise=noise,
    first=first.history["loss"],
    second=second.history["loss"],
    scored=model.evaluate(windows),
    **{variable.path: variable.numpy() for variable in model.variables},
)
