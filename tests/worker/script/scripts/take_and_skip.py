"""A split of one shuffled dataset by `take` and `skip`, as in keras.io's siamese example: every pass through
either part draws the next order of the one shuffle.
"""

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.default_rng(5).normal(size=(60, 4)).astype("float32")
y = x @ np.array([[1.0], [-2.0], [0.5], [3.0]], "float32")
results = {}


def made():
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(1)]
    )
    model.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"])
    return model


def noted(name, history):
    results.update({f"{name}_{key}": values for key, values in history.history.items()})


data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(60)
train, validation = data.take(44).batch(8), data.skip(44).batch(8).prefetch(2)
model = made()
noted("first", model.fit(train, validation_data=validation, epochs=3, verbose=0))
results["scored"] = model.evaluate(validation, verbose=0)
results["predicted"] = model.predict(data.skip(50).batch(8), verbose=0)
steps = {"steps_per_epoch": 6, "validation_steps": 1, "validation_freq": 2}
noted("second", model.fit(train, validation_data=validation, epochs=4, **steps, verbose=0))
results["seen"] = [float(tf.reduce_sum(labels)) for _, labels in validation]

# The common shuffle is behind another one, of which validation draws nothing.
again = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(60, seed=3)
train, validation = again.take(44).shuffle(20).batch(8), again.skip(44).batch(8)
noted("behind", model.fit(train, validation_data=validation, epochs=3, verbose=0))
kept = again.take(40).filter(lambda features, _: features[0] > -9).batch(8)  # of no known size
noted("unknown", model.fit(kept, validation_data=again.skip(40).batch(5), epochs=2, verbose=0))
results["weights"] = model.layers[0].kernel.numpy()

np.savez("results.npz", **results)
