"""Optimizers that update in some steps only: they add gradients up, or overwrite weights with averages."""

import keras
import numpy as np
from keras import layers, optimizers

keras.utils.set_random_seed(11)
rng = np.random.default_rng(0)
numbers = rng.normal(size=(100, 6)).astype("float32")
words = rng.integers(0, 20, (100, 5))
labels = (numbers.sum(1, keepdims=True) > 0).astype("float32")
results = {}


def made():
    first, second = keras.Input((6,)), keras.Input((5,), dtype="int32")
    looked_up = layers.GlobalAveragePooling1D()(layers.Embedding(20, 4)(second))
    both = layers.Concatenate()([layers.Dense(8, activation="relu")(first), looked_up])
    return keras.Model([first, second], layers.Dense(1, activation="sigmoid")(both))


made_by = {
    "sgd": optimizers.SGD(0.1, momentum=0.9, gradient_accumulation_steps=2),
    "clipped": optimizers.Adam(0.01, gradient_accumulation_steps=3, clipnorm=0.5),
    "decayed": optimizers.AdamW(0.01, weight_decay=0.01, gradient_accumulation_steps=4, global_clipnorm=1.0),
    "averaged": optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=3),
    "both": optimizers.SGD(0.1, gradient_accumulation_steps=2, use_ema=True, ema_overwrite_frequency=4),
}
for name, optimizer in made_by.items():
    model = made()
    model.compile(optimizer, "binary_crossentropy")
    history = model.fit([numbers, words], labels, batch_size=24, epochs=2, verbose=0, shuffle=False)
    results[f"{name}_loss"] = history.history["loss"]
    results.update({f"{name}_{index}": weights for index, weights in enumerate(model.get_weights())})

np.savez("results.npz", **results)
