"""Caches behind a shuffle, as in TensorFlow's text classification tutorial: a cache keeps the order that is
due at its first whole pass, after those that the script has looked at.
"""

import keras
import numpy as np
import tensorflow as tf

x = np.random.default_rng(0).normal(size=(100, 4)).astype("float32")
y = x.sum(axis=1)[:, None]
results = {}


def shuffled():
    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(100).batch(32)


def fit(name, dataset):
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    results[name] = model.fit(dataset, epochs=2, verbose=0).history["loss"]


keras.utils.set_random_seed(5)
raw = shuffled()
for _ in raw:  # as adapt() does it
    pass
next(iter(raw.take(1)))
signs = keras.layers.IntegerLookup(vocabulary=[-1, 1])


def prepared(features, labels):
    return features, labels + tf.cast(signs(tf.sign(labels)), tf.float32)


kept = raw.map(prepared).cache().prefetch(2)
fit("looked_at", kept)
fit("again", kept)
fit("below", raw)

raw = shuffled()
kept = raw.cache()
next(iter(kept.take(1)))
fit("partly", kept)

raw = shuffled()
kept = raw.cache()
for _ in (*raw, *kept, *raw):
    pass
fit("filled", kept)

some = tf.data.Dataset.from_tensor_slices((x, y)).take(96).shuffle(96).batch(32)
next(iter(some))
kept = some.cache()
fit("of_a_part", kept)
fit("of_a_part_again", kept)

raw = shuffled()
next(iter(raw))
twice = raw.cache().shuffle(3)
fit("two_shuffles", twice)
fit("two_again", twice)

np.savez("results.npz", **results)
