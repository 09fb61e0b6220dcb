"""Looks for a learning rate, which rises with every batch, ends within an epoch, and trains again."""

import keras
import numpy as np
import tensorflow as tf


class Finder(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.rates, self.losses = [], []

    def on_train_batch_end(self, batch, logs=None):
        self.rates.append(float(self.model.optimizer.learning_rate))
        self.losses.append(logs["loss"])
        self.model.optimizer.learning_rate = self.rates[-1] * 3
        if self.rates[-1] > 0.3:
            self.model.stop_training = True


rng = np.random.default_rng(8)
x = rng.normal(size=(320, 6)).astype("float32")
y = np.tanh(x.sum(axis=1, keepdims=True))

keras.utils.set_random_seed(7)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(1e-3), "mse")
finder = Finder()
search = model.fit(x, y, batch_size=16, epochs=5, callbacks=[finder])

data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(320).batch(16)
model.optimizer.learning_rate = 1e-3
again = model.fit(data, epochs=5, callbacks=[Finder()])
model.optimizer.learning_rate = 1e-2
last = model.fit(data, epochs=2)

np.savez(
    "results.npz",
    rates=np.log(finder.rates),
    losses=finder.losses,
    searched=search.history["loss"],
    epochs=search.epoch + again.epoch,
    again=again.history["loss"],
    last=last.history["loss"],
    steps=model.optimizer.iterations.numpy(),
    **{variable.path: variable.numpy() for variable in model.trainable_variables},
)
