"""A GAN of the older books, by Keras 2: train_on_batch of two models, one of which is frozen in the other."""

import numpy as np
import tf_keras as keras

rng = np.random.default_rng(9)
real = rng.normal(size=(60, 4)).astype("float32")

keras.utils.set_random_seed(5)
discriminator = keras.Sequential(
    [keras.layers.Dense(8, "relu", input_shape=(4,)), keras.layers.Dense(1, "sigmoid")]
)
discriminator.compile(optimizer=keras.optimizers.Adam(0.01), loss="binary_crossentropy", metrics=["accuracy"])
generator = keras.Sequential([keras.layers.Dense(8, "relu", input_shape=(3,)), keras.layers.Dense(4)])
discriminator.trainable = False
gan = keras.Sequential([generator, discriminator])
gan.compile(optimizer=keras.optimizers.Adam(0.01), loss="binary_crossentropy")

losses = []
for step in range(4):
    noise = rng.normal(size=(15, 3)).astype("float32")
    batch = np.concatenate([real[15 * step : 15 * step + 15], generator.predict(noise, verbose=0)])
    of_discriminator = discriminator.train_on_batch(batch, np.repeat([1.0, 0.0], 15))
    losses.append([*of_discriminator, gan.train_on_batch(noise, np.ones(15))])

np.savez(
    "results.npz",
    losses=losses,
    **{f"d{i}": value for i, value in enumerate(discriminator.get_weights())},
    **{f"g{i}": value for i, value in enumerate(generator.get_weights())},
)
