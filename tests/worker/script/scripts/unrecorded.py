"""What fit() has done, and TensorBoard's curves, cannot be written for two epochs, as on a disk that is full
for a while.
"""

import os

import keras
import numpy as np


class Full(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        record, curves = "../fits/1.json.new", "../logs/validation"
        if epoch == 0:
            os.mkdir(record)
            os.makedirs("../logs", exist_ok=True)
            open(curves, "w").close()
        elif epoch == 2:
            os.rmdir(record)
            os.remove(curves)


keras.utils.set_random_seed(3)
x = np.random.normal(size=(48, 3)).astype("float32")
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
callbacks = [Full()] if os.path.isfile("../run-state.json") else []  # not in one process
history = model.fit(
    *(x, x.sum(1)),
    batch_size=16,
    epochs=3,
    shuffle=False,
    verbose=0,
    validation_split=0.5,
    callbacks=callbacks,
)
np.savez("results.npz", *model.get_weights(), **history.history)
