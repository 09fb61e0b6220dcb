"""Keras 2, by tf_keras: images, dropout off, class weights, a schedule, files of several kinds, a fit that
goes on with the same shuffled data, and a step of the model's own, as tensorflow_recommenders has one;
a layer with a vocabulary; a loss and a metric that are added to a functional model;
a moving mean of batches that do not divide; numbers in float64.
"""

import numpy as np
import tensorflow as tf
import tf_keras as keras

rng = np.random.default_rng(3)
images = rng.uniform(size=(96, 8, 8, 1)).astype("float32")
labels = rng.integers(0, 2, size=96)
data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(96, seed=2).batch(32)

keras.utils.set_random_seed(13)
model = keras.Sequential(
    [
        keras.layers.Conv2D(4, 3, activation="relu", input_shape=(8, 8, 1)),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(2),
    ]
)
rate = keras.optimizers.schedules.ExponentialDecay(0.01, 10, 0.9)
model.compile(
    keras.optimizers.RMSprop(rate), keras.losses.SparseCategoricalCrossentropy(from_logits=True), ["accuracy"]
)
checkpoint = keras.callbacks.ModelCheckpoint("weights", save_weights_only=True)
history = model.fit(
    data,
    epochs=3,
    class_weight={0: 1.0, 1: 2.0},
    validation_data=(images[:20], labels[:20]),
    callbacks=[checkpoint],
)
model.load_weights("weights")
later = model.fit(data, epochs=2)
model.save("model.h5")
again = keras.models.load_model("model.h5")


class Ranking(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1, kernel_regularizer="l2")
        self.loss_of = keras.losses.MeanSquaredError()

    def call(self, features):
        return self.dense(tf.reshape(features["pixels"], [-1, 64]))

    def compute_loss(self, features):
        rating = features.pop("rating")
        return self.loss_of(rating[:, None], self(features))

    def train_step(self, features):
        with tf.GradientTape() as tape:
            loss = self.compute_loss(features)
            regularization_loss = sum(self.losses)
            total_loss = loss + regularization_loss
        gradients = tape.gradient(total_loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss, "regularization_loss": regularization_loss, "total_loss": total_loss}

    def test_step(self, features):
        return {"loss": self.compute_loss(features)}


ratings = tf.data.Dataset.from_tensor_slices({"pixels": images, "rating": labels.astype("float32")}).batch(40)
ranking = Ranking()
ranking.compile(keras.optimizers.Adagrad(0.1))
ranked = ranking.fit(ratings, epochs=2, validation_data=ratings)
tf.saved_model.save(ranking, "ranking")
served = tf.saved_model.load("ranking")
words = tf.constant([f"w{number % 5} w{number % 3}" for number in range(96)])
vectorized = keras.layers.TextVectorization(output_mode="count")
vectorized.adapt(words)
counted = keras.Sequential([vectorized, keras.layers.Dense(1, activation="sigmoid")])
counted.compile(keras.optimizers.SGD(0.1), "binary_crossentropy")
of_words = counted.fit(tf.data.Dataset.from_tensor_slices((words, labels)).batch(32), epochs=2)


class Coder(keras.Model):
    """Has no call(), parts that its step builds, and a mean over the batch."""

    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(3, activation="tanh")])
        self.decoder = keras.Sequential([keras.layers.Dense(64)])
        self.mean = keras.losses.MeanSquaredError()

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self.mean(tf.reshape(data, [-1, 64]), self.decoder(self.encoder(data)))
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
        return {"loss": loss}


coder = Coder()
coder.compile(keras.optimizers.Adam(0.01))
coder.fit(images, batch_size=32, epochs=2)
pixels = keras.Input((8, 8, 1))
hidden = keras.layers.Dense(3, activation="tanh")(keras.layers.Flatten()(pixels))
measured = keras.Model(pixels, keras.layers.Dense(1)(hidden))
measured.add_loss(0.1 * tf.reduce_mean(tf.square(hidden)))
measured.add_metric(tf.reduce_mean(tf.abs(hidden)), name="size", aggregation="mean")
measured.compile(keras.optimizers.SGD(0.1), "mse")
sized = measured.fit(images, labels, batch_size=32, epochs=2, validation_data=(images[:20], labels[:20]))


class Moving(keras.layers.Layer):
    def build(self, shape):
        self.mean = self.add_weight("mean", shape=shape[1:], initializer="zeros", trainable=False)

    def call(self, inputs, training=False):
        if training:
            self.mean.assign(0.9 * self.mean + 0.1 * tf.reduce_mean(inputs, axis=0))
        return inputs - self.mean


centred = keras.Sequential([keras.layers.Flatten(), Moving(), keras.layers.Dense(1)])
centred.compile("adam", "mse")
centred.fit(images, labels, batch_size=27, epochs=2)
keras.backend.set_floatx("float64")
exact = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(1, kernel_regularizer="l2")])
exact.compile(keras.optimizers.SGD(0.01), "mse")
exactly = exact.fit(images.astype("float64"), labels, batch_size=32, epochs=2, validation_split=0.2)
keras.backend.set_floatx("float32")
candidates = tf.Variable(["first", "second one"], trainable=False)
models = (model, ranking, coder, measured, centred, exact)
weights = [weight for each in models for weight in each.get_weights()]
np.savez(
    "results.npz",
    scores=model.evaluate(images, labels),
    again=again.predict(images),
    later=later.history["loss"],
    served=served({"pixels": images[:5]}),
    lengths=tf.strings.length(candidates),
    of_words=of_words.history["loss"],
    exactly=list(exactly.history.values()),
    last=list(ranked.history.values()),
    sized=list(sized.history.values()),
    **history.history,
    **{f"{i}": weight for i, weight in enumerate(weights)},
)
