"""A parameter-server script that saves and restores in every way: `saves.py DIRECTORY [BY ITSELF]`."""

import os
import sys
from pathlib import Path

import numpy as np

import worker

folder, by_itself = Path(sys.argv[1]), bool(sys.argv[2:])
if by_itself:
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    worker.save_here()

import tensorflow as tf  # noqa: E402 - after the call, which need not wait for it

before = tf.keras.callbacks.ModelCheckpoint(f"{folder}/weights/ckpt-{{epoch}}", save_weights_only=True)
strategy = tf.distribute.ParameterServerStrategy(
    tf.distribute.cluster_resolver.TFConfigClusterResolver(),
    variable_partitioner=tf.distribute.experimental.partitioners.FixedShardsPartitioner(2),
)
features = np.random.RandomState(0).uniform(-1, 1, (64, 4)).astype("float32")
data = tf.data.Dataset.from_tensor_slices((features, features.sum(axis=1))).repeat().batch(8)


def create_model() -> tf.keras.Model:
    model = tf.keras.Sequential([tf.keras.layers.Dense(8, input_shape=(4,)), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.Adam(0.01), "mse")
    return model


def values(model: tf.keras.Model) -> np.ndarray:
    return np.asarray(tf.convert_to_tensor(model.layers[0].kernel))


def show(name: str, same: bool) -> None:
    print(name, "restored" if same else "LOST", flush=True)


with strategy.scope():
    model = create_model()
    again = create_model()
callbacks = tf.keras.callbacks
fitted = model.fit(
    data,
    epochs=2,
    steps_per_epoch=4,
    callbacks=[
        before,
        callbacks.ModelCheckpoint(f"{folder}/whole/{{epoch}}", save_format="tf"),
        callbacks.BackupAndRestore(f"{folder}/backup", delete_checkpoint=False),
    ],
    verbose=0,
)
expected = values(model)

again.load_weights(f"{folder}/weights/ckpt-2")
show("ModelCheckpoint", np.array_equal(values(again), expected))

checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
manager = tf.train.CheckpointManager(checkpoint, f"{folder}/managed", max_to_keep=2)
manager.save()
with strategy.scope():
    for variable in model.trainable_variables:
        variable.assign(tf.zeros_like(variable))
manager.restore_or_initialize()
show("CheckpointManager", np.array_equal(values(model), expected))

with strategy.scope():
    third = create_model()
resumed = third.fit(
    data,
    epochs=3,
    steps_per_epoch=4,
    callbacks=[callbacks.BackupAndRestore(f"{folder}/backup")],
    verbose=0,
)
show("BackupAndRestore", resumed.epoch == [2] and int(third.optimizer.iterations.numpy()) == 12)

model.save(f"{folder}/saved", save_format="tf", include_optimizer=False)
plain = tf.saved_model.load(f"{folder}/saved")
show("model.save", np.allclose(plain(features), model(features)))

mine = tf.train.CheckpointOptions(experimental_io_device="/job:ps/task:0")
try:
    checkpoint.write(f"{folder}/elsewhere", options=mine)
    print("written by the ps", flush=True)
except tf.errors.OpError:
    print("the ps cannot write", flush=True)
if by_itself:
    worker.release()
