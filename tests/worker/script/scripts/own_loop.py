"""Trains by a loop of its own, without fit."""

import keras
import numpy as np
import tensorflow as tf

x = np.random.normal(size=(64, 3)).astype("float32")
y = x.sum(axis=1, keepdims=True)
model = keras.Sequential([keras.Input(shape=(3,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.1)
for epoch in range(2):
    for xs, ys in tf.data.Dataset.from_tensor_slices((x, y)).batch(16):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(xs) - ys) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    print("epoch", epoch, float(loss))
