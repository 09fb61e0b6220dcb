"""Keras 2, by tf_keras: images, dropout off, class weights, a schedule, files of several kinds, and a
fit that goes on with the same shuffled data.
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
np.savez(
    "results.npz",
    scores=model.evaluate(images, labels),
    again=again.predict(images),
    later=later.history["loss"],
    **history.history,
    **{f"{i}": weight for i, weight in enumerate(model.get_weights())},
)
