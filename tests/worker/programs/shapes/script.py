"""Scripts of one's own that train shapes: they build their strategy themselves, as TensorFlow's tutorials do.

`script.py --strategy NAME --folder FOLDER --shapes A,B` trains by Model.fit, the function `train` by a loop.
FOLDER/outcomes.jsonl gets a line when a shape begins and one when it ends.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import tensorflow as tf
from shapes import SHAPES

from worker.failures import classify

START_SECONDS = 600.0
SHAPE_SECONDS = 420.0
"""A shape that takes longer hangs: the process ends, and shows where."""


def strategy_of(name: str) -> Any:
    """By the name of its column."""
    name, _, count = name.partition("-")
    if name == "OneDevice":
        return tf.distribute.OneDeviceStrategy("/cpu:0")
    if name == "MultiWorkerMirrored":
        return tf.distribute.MultiWorkerMirroredStrategy()
    if name == "ParameterServer":
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        return tf.distribute.ParameterServerStrategy(resolver)
    devices = [f"/cpu:{index}" for index in range(int(count or 2))]
    (cpu, *_) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * len(devices))
    if name == "Mirrored":
        return tf.distribute.MirroredStrategy(devices)
    return tf.distribute.experimental.CentralStorageStrategy(devices)


def by_fit(strategy: Any, shape: Any) -> Any:
    """As in the tutorials distribute/keras and distribute/multi_worker_with_keras."""
    with strategy.scope():
        model = shape.model()
        data = shape.train_dataset(shape.batch_size)
    if isinstance(data, tf.distribute.DistributedDataset):
        model.fit(data, epochs=shape.epochs, verbose=0)
        return model
    steps = shape.steps or steps_of(data)
    repeated = data.repeat() if isinstance(data, tf.data.Dataset) else data
    model.fit(repeated, epochs=shape.epochs, steps_per_epoch=steps, verbose=0)
    return model


def by_loop(strategy: Any, shape: Any) -> Any:
    """As in the tutorials distribute/custom_training and distribute/parameter_server_training."""
    coordinates = isinstance(strategy, tf.distribute.ParameterServerStrategy)
    with strategy.scope():
        model = shape.model()
        data = shape.train_dataset(shape.batch_size)
        model(next(iter(shape.evaluation_dataset(shape.batch_size)))[0])
        model.optimizer.build(model.trainable_variables)
    steps = shape.steps or steps_of(data)

    def on_replica(batch: Any) -> None:
        features, labels, weights = tf.keras.utils.unpack_x_y_sample_weight(batch)
        optimizer, variables = model.optimizer, model.trainable_variables
        scales = hasattr(optimizer, "get_scaled_loss")
        with tf.GradientTape() as tape:
            losses = shape.loss(labels, model(features, training=True))
            if losses.shape.rank > 1:
                losses = tf.reduce_mean(losses, axis=list(range(1, losses.shape.rank)))
            loss = tf.nn.compute_average_loss(losses, weights, global_batch_size=shape.batch_size)
            if model.losses:
                loss += tf.nn.scale_regularization_loss(tf.add_n(model.losses))
            scaled = optimizer.get_scaled_loss(loss) if scales else loss
        gradients = tape.gradient(scaled, variables)
        gradients = optimizer.get_unscaled_gradients(gradients) if scales else gradients
        optimizer.apply_gradients(zip(gradients, variables, strict=True))

    @tf.function
    def step(iterator: Any) -> None:
        strategy.run(on_replica, args=(next(iterator),))

    if coordinates:
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        dataset = coordinator.create_per_worker_dataset(lambda: endless(strategy, shape))
        iterator = iter(dataset)
        for _ in range(shape.epochs * steps):
            coordinator.schedule(step, args=(iterator,))
        coordinator.join()
        return model
    iterator = iter(() if isinstance(data, tf.distribute.DistributedDataset) else distributed(strategy, data))
    for index in range(shape.epochs * steps):
        if isinstance(data, tf.distribute.DistributedDataset) and index % steps == 0:
            iterator = iter(data)
        step(iterator)
    return model


def endless(strategy: Any, shape: Any) -> Any:
    """On a worker of ParameterServer."""
    data = shape.train_dataset(shape.batch_size)
    return data.repeat() if isinstance(data, tf.data.Dataset) else distributed(strategy, data)


def distributed(strategy: Any, data: Any) -> Any:
    if isinstance(data, tf.data.Dataset):
        return strategy.experimental_distribute_dataset(data.repeat())
    return strategy.distribute_datasets_from_function(data.dataset_fn)


def steps_of(data: Any) -> int:
    return sum(1 for _ in data)


def run(strategy_name: str, folder: Path, names: Sequence[str], style: str) -> None:
    """All shapes, one after the other, with one strategy."""
    faulthandler.dump_traceback_later(START_SECONDS, exit=True)
    strategy = strategy_of(strategy_name)
    trains = by_fit if style == "script" else by_loop
    resolver = strategy.cluster_resolver
    index = 0 if resolver is None else resolver.task_id or 0

    def say(name: str, what: str, **fields: Any) -> None:
        if index == 0:
            with (folder / "outcomes.jsonl").open("a") as file:
                line = {"cell": [strategy_name, style, name], "what": what, **fields}
                file.write(json.dumps(line) + "\n")

    for name in names:
        faulthandler.dump_traceback_later(SHAPE_SECONDS, exit=True)
        began = time.monotonic()
        say(name, "began")
        cell = "-".join((strategy_name, style, name))
        try:
            tf.keras.mixed_precision.set_global_policy("float32")
            # Each task has files of its own, since nobody waits for the others here.
            shape = SHAPES[name](str(folder / f"data-{style}-{index}"))
            if hasattr(shape, "write"):
                shape.write()
            outcome, weights = outcome_of(trains, strategy, shape, folder / f"{cell}-{index}")
            outcome["outcome"] = "trained"
            if index == 0:
                np.savez(folder / f"{cell}.npz", *weights)
        except Exception as error:  # noqa: BLE001 - it is this shape's outcome
            outcome = {
                "outcome": "refused",
                # What the user would be told.
                "message": classify(error, f"running the {style}").message,
                "cause": "".join(traceback.format_exception(error))[-6000:],
                "after_a_step": False,
            }
        say(name, "ended", seconds={"all": round(time.monotonic() - began, 2)}, notices=[], **outcome)
        if outcome["outcome"] != "trained" and resolver is not None:
            # Other tasks may wait for this one. Another process goes on behind this shape.
            os._exit(3)
    faulthandler.cancel_dump_traceback_later()


def outcome_of(trains: Callable[[Any, Any], Any], strategy: Any, shape: Any, directory: Path) -> Any:
    """Trains, saves and restores. Returns what is to be compared, and the weights."""
    model = trains(strategy, shape)
    weights = model.get_weights()
    coordinates = isinstance(strategy, tf.distribute.ParameterServerStrategy)
    # Otherwise each parameter server writes to its own disk.
    here = tf.train.CheckpointOptions(experimental_io_device="/job:chief/task:0" if coordinates else None)
    path = tf.train.Checkpoint(model=model).write(str(directory / "ckpt"), options=here)
    again = shape.model()
    again(next(iter(shape.evaluation_dataset(shape.batch_size)))[0])
    tf.train.Checkpoint(model=again).read(path).assert_existing_objects_matched().expect_partial()
    pairs = zip(weights, again.get_weights(), strict=True)
    far = max(float(np.max(np.abs(one - other), initial=0.0)) for one, other in pairs)
    iterations = strategy.experimental_local_results(model.optimizer.iterations)[0]
    return {"iterations": int(iterations), "resume_difference": far}, weights


def train(strategy: str, folder: str, shapes: str) -> None:
    """For `python -m worker -- -m worker.function script:train`."""
    run(strategy, Path(folder), shapes.split(","), "function")


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("strategy", "folder", "shapes"):
        parser.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args()
    run(arguments.strategy, Path(arguments.folder), arguments.shapes.split(","), "script")


if __name__ == "__main__":
    main()
