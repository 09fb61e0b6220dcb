"""What scripts have around fit: clear_session between folds, class weights, a loop of
train_on_batch, losses of single outputs, a SavedModel that is loaded and called.
"""

import keras
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(8)
x = rng.normal(size=(70, 6)).astype("float32")
y = (x[:, 0] > 0.3).astype("int64")
results = {}

for fold in range(2):
    keras.backend.clear_session()
    keras.utils.set_random_seed(fold)
    model = keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(2)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
    history = model.fit(data, epochs=3, class_weight={0: 0.7, 1: 2.0})
    results[f"fold_{fold}"] = history.history["loss"]
results["weights"] = model.layers[0].kernel.numpy()

trained = [model.train_on_batch(x[i : i + 16], y[i : i + 16]) for i in range(0, 70, 16)]
results |= {"trained": trained, "tested": model.test_on_batch(x, y), "asked": model.predict_on_batch(x[:5])}
results["steps"] = int(model.optimizer.iterations)

model.export("exported")
loaded = tf.saved_model.load("exported")
results["served"] = loaded.serve(x[:5]).numpy()

inputs = keras.Input((6,))
outputs = {"a": keras.layers.Dense(1, name="a")(inputs), "b": keras.layers.Dense(1, name="b")(inputs)}
two = keras.Model(inputs, outputs)
two.compile("sgd", loss={"a": "mse", "b": "mae"})
targets = {"a": x[:, :1], "b": x[:, 1:2]}
history = two.fit(x, targets, batch_size=16, epochs=2, shuffle=False, validation_data=(x, targets))
results |= history.history

np.savez("results.npz", **results)
