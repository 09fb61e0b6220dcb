"""Text by TextVectorization, an embedding and a bidirectional LSTM; the best weights are put back."""

import keras
import numpy as np
import tensorflow as tf

texts = ["a good film", "a bad film", "good fun", "bad and dull", "dull film", "fun fun fun"] * 8
labels = np.array([1, 0, 1, 0, 0, 1] * 8, "float32")

keras.utils.set_random_seed(2)
vectorize = keras.layers.TextVectorization(max_tokens=20, output_sequence_length=4)
vectorize.adapt(texts)
dataset = tf.data.Dataset.from_tensor_slices((texts, labels)).batch(12)
train = dataset.map(lambda text, label: (vectorize(text), label)).cache().prefetch(2)

inputs = keras.Input(shape=(None,), dtype="int64")
h = keras.layers.Embedding(20, 6, mask_zero=True)(inputs)
h = keras.layers.Bidirectional(keras.layers.LSTM(4))(h)
outputs = keras.layers.Dense(1, activation="sigmoid")(h)
model = keras.Model(inputs, outputs)
model.compile(keras.optimizers.Adam(0.05), "binary_crossentropy", metrics=["accuracy"])
history = model.fit(
    train,
    epochs=8,
    validation_data=train.take(2),
    callbacks=[
        keras.callbacks.EarlyStopping(
            monitor="val_loss", patience=1, min_delta=0.05, restore_best_weights=True
        ),
        keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=1),
    ],
)
end_to_end = keras.Sequential([keras.Input(shape=(1,), dtype="string"), vectorize, model])
print(end_to_end.predict(tf.constant([["a good good film"]])))

# Batches of a size that nothing tells before they are read, the last one smaller, many in one execution.
many = tf.data.Dataset.from_tensor_slices((texts * 4, np.tile(labels, 4))).batch(40)
many = many.map(lambda text, label: (vectorize(text), label), num_parallel_calls=2).shuffle(9)
plain = keras.Sequential([keras.Input((4,)), keras.layers.Embedding(20, 3), keras.layers.Flatten()])
plain.add(keras.layers.Dense(1, activation="sigmoid"))
plain.compile(keras.optimizers.Adam(0.01), "binary_crossentropy")
losses = plain.fit(many, epochs=6, verbose=0).history["loss"]
np.savez(
    "results.npz",
    losses=losses,
    rows=plain.layers[0].embeddings.numpy(),
    score=model.evaluate(train),
    said=end_to_end.predict(tf.constant([["a good good film"], ["dull"]])),
    **history.history,
    **{variable.path: variable.numpy() for variable in model.trainable_variables},
)
