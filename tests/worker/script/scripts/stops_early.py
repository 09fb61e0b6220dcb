"""Calls that use one shuffled dataset after another: a fit that is stopped early, evaluate, fit, predict."""

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
rng = np.random.default_rng(0)
x = rng.normal(size=(120, 6)).astype("float32")
y = (x @ rng.normal(size=(6, 1))).astype("float32")
train = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(120, seed=5).batch(12)
held_out = tf.data.Dataset.from_tensor_slices((x[:30], y[:30])).shuffle(30, seed=3).batch(12)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")
stop = keras.callbacks.EarlyStopping(monitor="val_loss", patience=0, min_delta=0.2)
first = model.fit(train, validation_data=held_out, epochs=6, callbacks=[stop])
scored = model.evaluate(train)
some = model.evaluate(train, steps=3)
seen = [float(labels.numpy().sum()) for _, labels in train]
second = model.fit(train, epochs=2)
predicted = model.predict(held_out)
np.savez(
    "results.npz",
    first=first.history["loss"],
    scored=scored,
    some=some,
    seen=seen,
    second=second.history["loss"],
    predicted=predicted,
    **{f"weight_{number}": value for number, value in enumerate(model.get_weights())},
)
