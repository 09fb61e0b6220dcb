"""The reference: one process with TensorFlow and Keras alone, and none of this project's code.

`python plain.py FOLDER DATA SHAPE.STYLE...` writes FOLDER/<shape>.<style>.npz and a line of JSON for each.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import numpy as np
import tensorflow as tf
from shapes import SHAPES


def fit(shape: Any) -> tuple[Any, dict[str, float], dict[str, float]]:
    model = shape.model()
    data = shape.plain_dataset(shape.batch_size)
    held_out = shape.evaluation_dataset(shape.batch_size)
    history = model.fit(
        data,
        epochs=shape.epochs,
        # One that ends would have to be repeated.
        steps_per_epoch=shape.steps if data.cardinality() == tf.data.INFINITE_CARDINALITY else None,
        validation_data=held_out,
        verbose=0,
        **shape.fit_options(),
    ).history
    last = {name: float(values[-1]) for name, values in history.items()}
    scores = {name[4:]: value for name, value in last.items() if name.startswith("val_")}
    if hasattr(model, "_compile_metrics"):
        # Keras 3 takes the mean of the batches' means as an output's loss, whatever the batches' sizes.
        scores = {name: value for name, value in scores.items() if not name.endswith("_loss")}
    return model, {name: value for name, value in last.items() if not name.startswith("val_")}, scores


def loop(shape: Any) -> tuple[Any, dict[str, float], dict[str, float]]:
    """Trains by hand: the sum of the examples' losses divided by the global batch size, plus the model's own
    losses.
    """
    model = shape.model()
    data = (
        shape.plain_dataset(shape.batch_size)
        if not shape.fit_options()
        else shape.train_dataset(shape.batch_size)
    )
    steps = shape.steps or sum(1 for _ in data)
    model(next(iter(data))[0])
    optimizer, variables = model.optimizer, model.trainable_variables
    scale, unscale = scaling(optimizer)

    def losses_of(labels: Any, predictions: Any) -> Any:
        losses = shape.loss(labels, predictions)
        return (
            tf.reduce_mean(losses, axis=list(range(1, losses.shape.rank)))
            if losses.shape.rank > 1
            else losses
        )

    def penalty() -> Any:
        return tf.add_n([tf.cast(loss, tf.float32) for loss in model.losses]) if model.losses else 0.0

    @tf.function
    def step(batch: Any) -> Any:
        features, labels, weights = tf.keras.utils.unpack_x_y_sample_weight(batch)
        with tf.GradientTape() as tape:
            predictions = model(features, training=True)
            losses = losses_of(labels, predictions)
            weighted = losses if weights is None else losses * weights
            added = penalty()
            loss = tf.reduce_sum(weighted) / shape.batch_size + added
            scaled = scale(loss)
        gradients = unscale(tape.gradient(scaled, variables))
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        update_metrics(model, features, labels, predictions, weights)
        size = tf.cast(tf.shape(losses)[0], tf.float32)
        return tf.reduce_sum(weighted) + added * size, size

    logs: dict[str, float] = {}
    for _ in range(shape.epochs):
        model.reset_metrics()
        total = count = 0.0
        for batch in data.take(steps):
            loss_sum, size = step(batch)
            total, count = total + float(loss_sum), count + float(size)
        logs = {"loss": total / count, **results(model)}
    return model, logs, score(shape, model, losses_of)


def score(shape: Any, model: Any, losses_of: Any) -> dict[str, float]:
    model.reset_metrics()
    total = count = 0.0
    for batch in shape.evaluation_dataset(shape.batch_size):
        features, labels, weights = tf.keras.utils.unpack_x_y_sample_weight(batch)
        predictions = model(features, training=False)
        losses = losses_of(labels, predictions)
        added = float(tf.add_n([tf.cast(loss, tf.float32) for loss in model.losses])) if model.losses else 0.0
        size = len(losses)
        total += float(tf.reduce_sum(losses if weights is None else losses * weights)) + added * size
        count += size
        update_metrics(model, features, labels, predictions, weights)
    return {"loss": total / count, **results(model)}


def scaling(optimizer: Any) -> tuple[Any, Any]:
    """Returns, for mixed precision, functions that scale the loss and unscale gradients."""
    if hasattr(optimizer, "get_scaled_loss"):
        return optimizer.get_scaled_loss, optimizer.get_unscaled_gradients
    # Keras 3 unscales when it applies them.
    return getattr(optimizer, "scale_loss", lambda loss: loss), lambda gradients: gradients


def update_metrics(model: Any, features: Any, labels: Any, predictions: Any, weights: Any) -> None:
    """Those that the model was compiled with."""
    if hasattr(model, "compiled_metrics") and not hasattr(model, "_compile_metrics"):
        model.compiled_metrics.update_state(labels, predictions, weights)
    else:
        model.compute_metrics(features, labels, predictions, weights)


def steps_of(shape: Any) -> int:
    return shape.steps or sum(1 for _ in shape.plain_dataset(shape.batch_size))


def results(model: Any) -> dict[str, float]:
    values = {}
    for metric in model.metrics:
        result = metric.result()
        values.update(result if isinstance(result, dict) else {metric.name: result})
    return {name: float(value) for name, value in values.items() if name != "loss"}


STYLES = {"fit": fit, "loop": loop} if os.environ["TF_USE_LEGACY_KERAS"] == "1" else {"keras-3": fit}


def main() -> None:
    folder, data, *names = sys.argv[1:]
    for name, style in (name.split(".") for name in names):
        train = STYLES[style]
        began = time.monotonic()
        tf.keras.mixed_precision.set_global_policy("float32")
        shape = SHAPES[name](data)
        if hasattr(shape, "write"):
            shape.write()
        untrained = shape.model()
        try:
            model, logs, scores = train(shape)
            weights = model.get_weights()
            examples = shape.plain_dataset(shape.batch_size).take(shape.steps or -1)
            before = untrained.evaluate(examples, verbose=0, return_dict=True)
            document = {
                "logs": logs,
                "scores": scores,
                "loss_before": before["loss"],
                # Not the optimizer's own count: of a dataset of unknown size, TensorFlow may count the
                # step that finds the end of it.
                "iterations": shape.epochs * steps_of(shape),
                "whole": shape.examples % shape.batch_size == 0,
            }
            np.savez(Path(folder, f"{name}.{style}.npz"), *weights)
        except Exception as error:  # noqa: BLE001 - the cells of this shape fail with it
            document = {"error": f"{type(error).__name__}: {error}"}
        document["seconds"] = round(time.monotonic() - began, 2)
        print(json.dumps({"shape": name, "style": style, **document}), flush=True)


if __name__ == "__main__":
    main()
