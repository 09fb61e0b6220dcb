"""A subclassed model with its own train_step, from a tf.data.Dataset."""

import keras
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(2)
x = rng.normal(size=(160, 6)).astype("float32")
y = (x @ rng.normal(size=(6, 1))).astype("float32")
dataset = (
    tf.data.Dataset.from_tensor_slices((x, y)).shuffle(160, seed=5, reshuffle_each_iteration=False).batch(32)
)

keras.utils.set_random_seed(7)


class Regressor(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(16, activation="tanh")
        self.out = keras.layers.Dense(1)

    def call(self, inputs):
        return self.out(self.hidden(inputs))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
        return {m.name: m.result() for m in self.metrics}


model = Regressor()
model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse", metrics=["mae"])
history = model.fit(dataset, epochs=4, verbose=2)
model.save_weights("regressor.weights.h5")
results = model.evaluate(dataset, return_dict=True)
np.savez(
    "results.npz",
    predictions=model.predict(x, batch_size=50),
    mae=history.history["mae"],
    final=[results["loss"], results["mae"]],
    **{variable.path: variable.numpy() for variable in model.weights},
)
