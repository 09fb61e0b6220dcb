"""What `fit` of one process counts as a step is known before the training."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from worker.failures import Failure
from worker.script import data
from worker.tf_compat import keras_models

STEPS, EPOCHS = 4, 3


@pytest.mark.filterwarnings("ignore:.*ran out of data")
@pytest.mark.parametrize(
    ("options", "steps", "counts"),
    [
        ({}, None, True),
        ({}, STEPS, False),
        ({"run_eagerly": True}, None, False),
        ({"jit_compile": True}, None, False),
        ({"steps_per_execution": 2}, None, False),
    ],
    ids=["plain", "steps_per_epoch", "eager", "XLA", "steps_per_execution"],
)
@pytest.mark.parametrize("library", [keras, tf_keras], ids=["Keras 3", "Keras 2"])
def test_the_step_that_finds_the_end_is_counted(
    library: Any, options: dict[str, Any], steps: int | None, counts: bool
) -> None:
    if library is tf_keras and "steps_per_execution" in options:
        pytest.skip("Keras 2 ends such a training with an error")
    model = library.Sequential([library.layers.Input((2,)), library.layers.Dense(1)])
    model.compile("adam", "mse", **options)
    examples = tf.data.Dataset.from_tensor_slices((tf.ones((8, 2)), tf.ones((8, 1))))
    dataset = examples.filter(lambda *_: True).batch(2)
    assert data.counts_end(model, {"x": dataset, "steps_per_epoch": steps}, dataset) is counts
    assert not data.counts_end(model, {"x": examples, "steps_per_epoch": steps}, examples.batch(2))
    trained = dataset if steps is None else dataset.repeat()
    model.fit(trained, epochs=EPOCHS, steps_per_epoch=steps, shuffle=False, verbose=0)
    ends = (EPOCHS if library is keras else 1) if counts else 0
    assert int(model.optimizer.iterations) == EPOCHS * STEPS + ends


def test_what_has_made_no_step_counts_none() -> None:
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.other = keras.optimizers.SGD()
    model.scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())
    for optimizer in (model.other, model.scaled):
        optimizer.build(model.trainable_variables)
        optimizer.apply([tf.zeros_like(variable) for variable in model.trainable_variables])
    before = int(model.scaled.iterations)
    keras_models.count_step(model)
    assert int(model.optimizer.iterations) == 0
    assert int(model.other.iterations) == 2
    assert int(model.scaled.iterations) == before


def test_a_generator_is_read_to_its_end_for_one_epoch_and_refused_for_two() -> None:
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    given: dict[str, Any] = dict.fromkeys(("y", "sample_weight", "batch_size", "class_weight"))
    given |= {"shuffle": True, "validation_split": 0.0, "steps_per_epoch": None, "initial_epoch": 0}

    def batches() -> Any:
        yield from ((np.full((size, 2), size, "float32"), np.ones((size, 1))) for size in (3, 3, 2))

    notices: list[str] = []
    of = data.training(model, {**given, "x": batches(), "epochs": 1}, 1, "a.py:1", notices.append)
    assert [int(features[0, 0]) for features, _ in of.dataset] == [3, 3, 2]
    assert int(of.dataset.cardinality()) == 3
    assert "read into memory" in notices[0]
    with pytest.raises(Failure, match="for 2 epochs needs steps_per_epoch"):
        data.training(model, {**given, "x": batches(), "epochs": 2}, 1, "a.py:1", notices.append)
