"""Callbacks with a memory: EarlyStopping, ReduceLROnPlateau, ModelCheckpoint, CSVLogger, one of one's own."""

import csv
import time

import keras
import numpy as np

rng = np.random.default_rng(12)
x = rng.normal(size=(64, 6)).astype("float32")
y = rng.integers(0, 2, size=(64, 1)).astype("float32")


class Seen(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.losses = []

    def on_epoch_end(self, epoch, logs=None):
        self.losses.append(logs["val_loss"])
        time.sleep(0.3)


keras.utils.set_random_seed(3)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.5), "mse")
seen = Seen()
stop = keras.callbacks.EarlyStopping(patience=4, min_delta=1.0, restore_best_weights=True)
rate = keras.callbacks.ReduceLROnPlateau(patience=2, factor=0.5)
best = keras.callbacks.ModelCheckpoint("best.weights.h5", save_weights_only=True, save_best_only=True)
history = model.fit(
    x[:48],
    y[:48],
    batch_size=16,
    epochs=20,
    shuffle=False,
    validation_data=(x[48:], y[48:]),
    callbacks=[stop, rate, best, keras.callbacks.CSVLogger("log.csv"), seen],
)
with open("log.csv") as file:
    rows = [int(row["epoch"]) for row in csv.DictReader(file)]
left = model.get_weights()
model.load_weights("best.weights.h5")
np.savez(
    "results.npz",
    stopped=len(history.epoch),
    rates=history.history["learning_rate"],
    seen=seen.losses,
    logged=np.unique(rows),
    **{f"left_{number}": value for number, value in enumerate(left)},
    **{f"best_{number}": value for number, value in enumerate(model.get_weights())},
)
