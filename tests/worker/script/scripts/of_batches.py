"""Losses and metrics of whole batches, batches of two sizes, and losses that the script calls itself."""

import keras
import numpy as np
import tensorflow as tf
import tf_keras

rng = np.random.default_rng(0)
x = rng.normal(size=(40, 6)).astype("float32")
y = (rng.random((40, 1)) < 0.3).astype("float32")
results = {}


def root_mean_squared_error(y_true, y_pred):
    return tf.sqrt(tf.reduce_mean(tf.square(y_pred - y_true)))


def dice(y_true, y_pred):
    common = tf.reduce_sum(y_true * y_pred)
    return 1.0 - 2.0 * common / (tf.reduce_sum(y_true) + tf.reduce_sum(y_pred))


def recall(y_true, y_pred):
    return tf.reduce_sum(y_true * tf.round(y_pred)) / (tf.reduce_sum(y_true) + 1.0)


def mean_error(y_true, y_pred):
    return tf.reduce_mean(tf.abs(y_true - y_pred))


for name, k, loss in (("3", keras, root_mean_squared_error), ("2", tf_keras, dice)):
    k.utils.set_random_seed(42)
    layers = [k.layers.Dense(8, "tanh"), k.layers.Dense(1, "sigmoid")]
    model = k.Sequential([k.Input((6,)), *layers])
    model.compile(k.optimizers.SGD(0.1), loss, metrics=[recall, mean_error])
    history = model.fit(
        x, y, batch_size=12, epochs=2, shuffle=False, validation_data=(x[:9], y[:9]), verbose=0
    )
    results |= {f"{name}.{key}": values for key, values in history.history.items()}
    results |= {f"{name}.{number}": value for number, value in enumerate(model.get_weights())}
    results[f"{name}.scores"] = model.evaluate(x, y, batch_size=16, verbose=0)
    outside = [k.losses.MeanSquaredError()(x, 2 * x), k.losses.BinaryCrossentropy()(y, 0.5 * y + 0.2)]
    results[f"{name}.outside"] = [float(value) for value in outside]


class TwoSizes(keras.Model):
    def __init__(self):
        super().__init__()
        self.net = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
        self.both = keras.metrics.Mean(name="both")

    @property
    def metrics(self):
        return [self.both]

    def call(self, inputs):
        return self.net(inputs)

    def train_step(self, batch):
        unlabeled, (features, labels) = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.net(features) - labels))
            loss += 0.1 * tf.reduce_mean(tf.square(self.net(unlabeled)))
        variables = self.net.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        self.both.update_state(loss)
        return {"both": self.both.result()}


keras.utils.set_random_seed(1)
many = tf.data.Dataset.from_tensor_slices(x[:36]).batch(12)
few = tf.data.Dataset.from_tensor_slices((x[:18], y[:18])).batch(6)
model = TwoSizes()
model.compile(keras.optimizers.SGD(0.05))
history = model.fit(tf.data.Dataset.zip((many, few)), epochs=2, verbose=0)
results["both"] = history.history["both"]
results |= {f"both.{number}": value for number, value in enumerate(model.get_weights()[:2])}
np.savez("results.npz", **results)
