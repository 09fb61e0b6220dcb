"""A loss of the model's own, which adds a mean to the compiled one, as guides to Keras 3 have it."""

import keras
import numpy as np


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(8, activation="tanh", kernel_regularizer="l2")
        self.out = keras.layers.Dense(4, activity_regularizer=keras.regularizers.L2(0.01))

    def call(self, x, training=False):
        return self.out(self.hidden(x))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        return loss + 0.1 * keras.ops.mean(keras.ops.square(y_pred))


rng = np.random.default_rng(2)
x = rng.normal(size=(250, 6)).astype("float32")
y = rng.integers(0, 4, 250)
keras.utils.set_random_seed(7)
model = Model()
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, metrics=["accuracy"])
history = model.fit(
    x, y, batch_size=64, epochs=3, shuffle=False, verbose=0, validation_data=(x[:100], y[:100])
)
scores = model.evaluate(x, y, verbose=0)


class Pairs(keras.Model):
    """Looks up rows and adds a mean over the batch; the last batch is more than a replica's part."""

    def __init__(self):
        super().__init__()
        self.rows = keras.layers.Embedding(9, 4)

    def call(self, pairs):
        first, second = self.rows(pairs["first"]), self.rows(pairs["second"])
        self.add_loss(keras.ops.mean(keras.ops.square(keras.ops.sum(first * second, -1) - 0.5)))
        return first


pairs = Pairs()
pairs.compile(keras.optimizers.SGD(1.0))
pairs.fit({"first": y, "second": y[::-1].copy()}, batch_size=144, epochs=2, shuffle=False, verbose=0)
np.savez("results.npz", *model.get_weights(), *pairs.get_weights(), scores=scores, **history.history)
