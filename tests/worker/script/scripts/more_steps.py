"""steps_per_epoch beyond the end of the data: of a shuffled dataset, and of arrays."""

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
rng = np.random.default_rng(0)
x = rng.normal(size=(60, 6)).astype("float32")
y = (x @ rng.normal(size=(6, 1))).astype("float32")
train = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(60, seed=5).batch(12)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")
first = model.fit(train, steps_per_epoch=8, epochs=2)
second = model.fit(train, epochs=2)
third = model.fit(x, y, batch_size=12, steps_per_epoch=9, epochs=2)
np.savez(
    "results.npz",
    first=first.history["loss"],
    second=second.history["loss"],
    third=third.history["loss"],
    iterations=model.optimizer.iterations.numpy(),
    **{f"weight_{number}": value for number, value in enumerate(model.get_weights())},
)
