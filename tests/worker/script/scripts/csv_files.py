"""CSV files that the script writes itself, of which TensorFlow does not know how many batches they have: a
first and a second fit, shuffled, and an evaluation.
"""

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(4)
rng = np.random.default_rng(2)
COLUMNS = ["width", "height", "kind", "price"]


def write(path, rows):
    with open(path, "w") as file:
        print(*COLUMNS, sep=",", file=file)
        for width, height in rng.normal(size=(rows, 2)):
            kind = "flat" if width > height else "tall"
            print(f"{width:.4f}", f"{height:.4f}", kind, f"{width - 2 * height:.4f}", sep=",", file=file)


def read(path, shuffle):
    return tf.data.experimental.make_csv_dataset(
        path,
        batch_size=16,
        column_names=COLUMNS,
        column_defaults=[[0.0], [0.0], [""], [0.0]],
        label_name="price",
        num_epochs=1,
        shuffle=shuffle,
    ).map(lambda features, price: (dict(features), price))


for number, rows in enumerate((30, 25, 20)):
    write(f"train-{number}.csv", rows)
write("test.csv", 41)
inputs = {name: keras.Input((), name=name) for name in COLUMNS[:2]}
inputs["kind"] = keras.Input((), name="kind", dtype="string")
kinds = keras.layers.StringLookup(vocabulary=["flat", "tall"], output_mode="one_hot")(inputs["kind"])
columns = [keras.ops.expand_dims(inputs[name], -1) for name in COLUMNS[:2]]
outputs = keras.layers.Dense(1)(keras.layers.Concatenate()([*columns, kinds]))
model = keras.Model(inputs, outputs)
model.compile(keras.optimizers.Adam(0.05), "mse", metrics=["mae"])
data, held_out = read("train-*.csv", shuffle=True), read("test.csv", shuffle=True)
first = model.fit(data, epochs=2)
second = model.fit(data, epochs=2, validation_data=held_out)
np.savez(
    "results.npz",
    first=first.history["loss"],
    second=second.history["loss"],
    validated=second.history["val_mae"],
    evaluated=model.evaluate(held_out),
    weights=model.layers[-1].kernel.numpy(),
    # Keras counts the step that finds the end of such data.
    counted=int(model.optimizer.iterations.numpy()),
)
