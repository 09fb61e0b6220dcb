"""Classifies the points of three spirals."""

import sys

import keras
import numpy as np

epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 30

rng = np.random.default_rng(0)
angle = np.linspace(0, 4, 500)
points, labels = [], []
for arm in range(3):
    turn = angle + 2 * np.pi * arm / 3 + rng.normal(scale=0.1, size=500)
    points.append(np.stack([angle * np.sin(turn), angle * np.cos(turn)], axis=1))
    labels.append(np.full(500, arm))
order = rng.permutation(1500)
x, y = np.concatenate(points)[order].astype("float32"), np.concatenate(labels)[order]
x_train, y_train, x_test, y_test = x[:1200], y[:1200], x[1200:], y[1200:]

model = keras.Sequential(
    [
        keras.Input(shape=(2,)),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(3, activation="softmax"),
    ]
)
model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(
    x_train,
    y_train,
    batch_size=60,
    epochs=epochs,
    validation_data=(x_test, y_test),
    callbacks=[keras.callbacks.CSVLogger("history.csv")],
)
loss, accuracy = model.evaluate(x_test, y_test)
print(f"test accuracy {accuracy:.3f}")
model.save("spirals.keras")
