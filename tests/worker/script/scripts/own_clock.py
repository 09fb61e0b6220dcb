"""Stops a training by the clock of one task: in the middle of an epoch, and at an epoch's end."""

import json
import os

import keras
import numpy as np

TASK = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {}).get("index", 0)
TASKS = len(json.loads(os.environ.get("TF_CONFIG", "{}")).get("cluster", {}).get("worker", "1"))
IS_LAST = TASK == TASKS - 1


class InTheMiddle(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if IS_LAST and batch == 3:
            self.model.stop_training = True


class AtTheEnd(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if IS_LAST and epoch == 1:
            self.model.stop_training = True


rng = np.random.default_rng(8)
x = rng.normal(size=(160, 6)).astype("float32")
y = np.tanh(x.sum(axis=1, keepdims=True))

keras.utils.set_random_seed(7)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(1e-2), "mse")
fits = [
    model.fit(x, y, batch_size=16, epochs=6, callbacks=[callback]) for callback in (InTheMiddle(), AtTheEnd())
]

np.savez(
    "results.npz",
    epochs=[len(fit.epoch) for fit in fits],
    losses=np.concatenate([fit.history["loss"] for fit in fits]),
    steps=model.optimizer.iterations.numpy(),
    **{variable.path: variable.numpy() for variable in model.trainable_variables},
)
