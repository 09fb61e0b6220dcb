"""K-fold cross-validation: a new model for each fold."""

import keras
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(4)
train_data = rng.normal(size=(90, 5)).astype("float32")
train_targets = (train_data[:, 0] * 2 - train_data[:, 3]).astype("float32")
tf.random.set_seed(9)
keras.utils.set_random_seed(9)


def build_model():
    model = keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
    model.compile(optimizer="rmsprop", loss="mse", metrics=["mae"])
    return model


k = 3
num_val_samples = len(train_data) // k
all_scores = []
all_histories = []
for i in range(k):
    print(f"Processing fold #{i}")
    val_data = train_data[i * num_val_samples : (i + 1) * num_val_samples]
    val_targets = train_targets[i * num_val_samples : (i + 1) * num_val_samples]
    partial_train_data = np.concatenate(
        [train_data[: i * num_val_samples], train_data[(i + 1) * num_val_samples :]], axis=0
    )
    partial_train_targets = np.concatenate(
        [train_targets[: i * num_val_samples], train_targets[(i + 1) * num_val_samples :]], axis=0
    )
    model = build_model()
    history = model.fit(
        partial_train_data,
        partial_train_targets,
        validation_data=(val_data, val_targets),
        epochs=3,
        batch_size=16,
        shuffle=False,
        verbose=0,
    )
    all_histories.append(history.history["val_mae"])
    val_mse, val_mae = model.evaluate(val_data, val_targets, verbose=0)
    all_scores.append(val_mae)

print("mean", np.mean(all_scores))
weights = {f"{i}": w for i, w in enumerate(model.get_weights())}
np.savez("results.npz", scores=all_scores, histories=all_histories, **weights)
