"""Two inputs and two outputs, weights for one of them."""

import keras
import numpy as np

rng = np.random.default_rng(8)
data = {
    "left": rng.normal(size=(100, 3)).astype("float32"),
    "right": rng.normal(size=(100, 2)).astype("float32"),
}
targets = {
    "price": rng.normal(size=(100, 1)).astype("float32"),
    "kind": rng.integers(0, 3, size=(100, 1)),
}
keras.utils.set_random_seed(5)
left, right = keras.Input(shape=(3,), name="left"), keras.Input(shape=(2,), name="right")
h = keras.layers.Concatenate()([left, right])
h = keras.layers.Dense(8, activation="relu", kernel_regularizer=keras.regularizers.L2(0.01))(h)
price = keras.layers.Dense(1, name="price")(h)
kind = keras.layers.Dense(3, activation="softmax", name="kind")(h)
model = keras.Model([left, right], {"price": price, "kind": kind})
model.compile(
    optimizer="adam",
    loss={"price": "mse", "kind": "sparse_categorical_crossentropy"},
    loss_weights={"price": 0.5, "kind": 1.0},
    metrics={"price": ["mae"], "kind": ["accuracy"]},
)
weights = {"price": np.ones(100, "float32"), "kind": rng.uniform(size=100).astype("float32")}
history = model.fit(
    data, targets, sample_weight=weights, batch_size=40, epochs=3, shuffle=False, validation_split=0.2
)
results = model.evaluate(data, targets, batch_size=50, return_dict=True)
predictions = model.predict(data)
np.savez(
    "results.npz",
    price=predictions["price"],
    kind=predictions["kind"],
    **{f"test_{name}": value for name, value in results.items()},
    **history.history,
)
