"""Classifies points by a functional model, from arrays."""

import keras
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(1)
x = rng.normal(size=(200, 4)).astype("float32")
y = (x.sum(axis=1) > 0).astype("float32")
x_train, y_train, x_test, y_test = x[:150], y[:150], x[150:], y[150:]

keras.utils.set_random_seed(3)
inputs = keras.Input(shape=(4,))
hidden = keras.layers.Dense(8, activation="relu")(inputs)
outputs = keras.layers.Dense(1, activation="sigmoid")(hidden)
model = keras.Model(inputs, outputs)
model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
model.summary()


def gradient_norm():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(keras.losses.binary_crossentropy(y_train[:, None], model(x_train)))
    return float(tf.linalg.global_norm(tape.gradient(loss, model.trainable_variables)))


class GradientNorms(keras.callbacks.Callback):
    """Looks at the gradient after each epoch."""

    def on_epoch_end(self, epoch, logs=None):
        norms.append(gradient_norm())


norms = [gradient_norm()]
history = model.fit(
    x_train,
    y_train,
    batch_size=32,
    epochs=3,
    validation_data=(x_test, y_test),
    callbacks=[GradientNorms()],
)
score = model.evaluate(x_test, y_test, verbose=0)
print("Test loss:", score[0])
print("Test accuracy:", score[1])
predictions = model.predict(x_test)
model.save("model.keras")


class Penalties(keras.layers.Layer):
    """Adds a sum over the batch, and a value for each example."""

    def call(self, inputs):
        self.add_loss(0.001 * keras.ops.sum(keras.ops.square(inputs)))
        self.add_loss(0.01 * keras.ops.mean(inputs, axis=-1))
        return inputs


# There are no weights to train.
penalized = keras.Model(inputs, keras.layers.ActivityRegularization(l2=0.01)(Penalties()(inputs)))
penalized.compile(optimizer="adam", loss="mse")
penalties = penalized.fit(x_train, x_train, batch_size=32, epochs=2).history["loss"]
penalties += penalized.fit(x_train, x_train, batch_size=32, epochs=1).history["loss"]
penalties.append(penalized.evaluate(x_test, x_test, batch_size=16))


class Moving(keras.layers.Layer):
    """Keeps a moving mean, a sum over all examples, and a count of the batches."""

    def build(self, shape):
        self.mean = tf.Variable(tf.zeros(shape[1:]), trainable=False)
        self.total = self.add_weight(shape=shape[1:], initializer="zeros", trainable=False)
        self.batches = self.add_weight(initializer="zeros", trainable=False)

    def call(self, inputs, training=False):
        if training:
            self.mean.assign(0.9 * self.mean + 0.1 * keras.ops.mean(inputs, axis=0))
            self.total.assign_add(keras.ops.sum(inputs, axis=0))
            self.batches.assign_add(1.0)
        return inputs - self.mean


# The size of a batch is known when a step is traced, and a metric has a number for each column.
moving = Moving()
centred = keras.Model(inputs, keras.layers.ActivityRegularization(l2=0.01)(moving(inputs)))
centred.compile(optimizer="adam", loss="mse", metrics=[keras.metrics.R2Score(class_aggregation=None)])
fitted = centred.fit(x_train, x_train**2, batch_size=30, epochs=2).history
penalties += fitted["loss"]

np.savez(
    "results.npz",
    score=score,
    predictions=predictions,
    penalties=penalties,
    r2=[*fitted["r2_score"], centred.evaluate(x_test, x_test**2, batch_size=16)[1]],
    moving=[moving.mean.numpy(), moving.total.numpy()],
    batches=moving.batches.numpy(),
    norms=norms,
    **history.history,
    **{variable.path: variable.numpy() for variable in model.variables},
)
