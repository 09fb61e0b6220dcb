"""Trains a head on a frozen base, then both with a small rate: two calls of fit on the same shuffled data,
callbacks that save.
"""

import csv

import keras
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(6)
x = rng.normal(size=(128, 8)).astype("float32")
y = rng.integers(0, 3, size=128)
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(128, seed=4).batch(32).prefetch(tf.data.AUTOTUNE)
(few,) = data.take(1)

keras.utils.set_random_seed(21)
base = keras.Sequential(
    [keras.Input(shape=(8,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(8)], name="base"
)
base.trainable = False
model = keras.Sequential([keras.Input(shape=(8,)), base, keras.layers.Dense(3, activation="softmax")])
model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
head = model.fit(
    data,
    epochs=2,
    validation_data=(x, y),
    callbacks=[keras.callbacks.ModelCheckpoint("head.keras", save_best_only=True)],
)

best = keras.models.load_model("head.keras")
noise = np.random.normal(size=3)

base.trainable = True
model.compile(keras.optimizers.Adam(0.001), "sparse_categorical_crossentropy", metrics=["accuracy"])
fine = model.fit(
    data,
    epochs=6,
    initial_epoch=2,
    validation_data=(x, y),
    callbacks=[keras.callbacks.CSVLogger("fine.csv", append=True)],
)

predictions = np.argmax(model.predict(x), axis=-1)
with open("fine.csv") as file:
    rows = [int(row["epoch"]) for row in csv.DictReader(file)]
np.savez(
    "results.npz",
    predictions=predictions,
    noise=noise,
    best=best.predict(x),
    epochs=fine.epoch,
    head=head.history["val_loss"],
    fine=fine.history["val_loss"],
    logged=np.unique(rows),
    **{variable.path: variable.numpy() for variable in model.variables},
)
