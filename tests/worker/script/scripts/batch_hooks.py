"""A callback with all hooks that Keras has, in fit, evaluate and predict."""

import keras
import numpy as np


class Seen(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.batches, self.ends, self.losses = [], [], []

    def on_train_batch_end(self, batch, logs=None):
        self.batches.append(batch)
        self.losses.append(logs["loss"])

    def on_test_begin(self, logs=None):
        self.ends.append(1)

    def on_test_batch_begin(self, batch, logs=None):
        self.batches.append(100 + batch)

    def on_test_batch_end(self, batch, logs=None):
        self.batches.append(200 + batch)
        self.losses.append(logs["loss"])

    def on_test_end(self, logs=None):
        self.losses.append(logs["mae"])
        self.ends.append(2)

    def on_predict_begin(self, logs=None):
        self.ends.append(3)

    def on_predict_batch_end(self, batch, logs=None):
        self.batches.append(300 + batch)
        self.losses.append(np.sum(logs["outputs"]))

    def on_predict_end(self, logs=None):
        self.ends.append(4)


rng = np.random.default_rng(8)
x = rng.normal(size=(80, 6)).astype("float32")
y = np.tanh(x.sum(axis=1, keepdims=True))

keras.utils.set_random_seed(7)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
model.compile("sgd", "mse", metrics=["mae"])
seen = Seen()
model.fit(x, y, batch_size=16, epochs=2, shuffle=False, validation_data=(x[:40], y[:40]), callbacks=[seen])
model.evaluate(x, y, batch_size=16, callbacks=[seen])
model.predict(x, batch_size=16, callbacks=[seen])

np.savez(
    "results.npz",
    batches=seen.batches,
    ends=seen.ends,
    losses=seen.losses,
    **{variable.path: variable.numpy() for variable in model.trainable_variables},
)
