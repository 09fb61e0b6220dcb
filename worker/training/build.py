"""Makes all variables of a training, and checks the model against its data."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from worker.context import Loop
from worker.failures import Failure, program_error
from worker.steps import model_build
from worker.tf_compat import keras_2_optimizers, keras_models
from worker.tf_compat.strategies import uses_coordinator
from worker.training import speed_advice


def build(model: Any, dataset: Any, loop: Loop) -> None:
    """Makes all variables, the optimizer's too: variables made later would be restored by whichever task
    makes them.
    """
    loop.hooks.enter("building the model")
    element = dataset.element_spec
    features = element[0] if isinstance(element, tuple) else element
    _check_batches(model, features, loop)
    model_build.build(model, element, loop.program.entrypoint)
    _check_batch_dimension(model, features, loop)
    optimizer = model.optimizer
    keras_models.build_optimizer(optimizer, model.trainable_variables)
    of_model = [each for each in keras_models.optimizers_of(model).values() if each is not optimizer]
    of_program = {
        name: each
        for name, each in loop.program.optimizers().items()
        if not any(each is other for other in (optimizer, *of_model))
    }
    if uses_coordinator(loop.strategy) and not keras_models.is_keras_3(model):
        for each in (optimizer, *of_model, *of_program.values()):
            keras_2_optimizers.mend(each)
    if of_program and loop.directory is not None:
        loop.notice(
            f"{loop.program.entrypoint}: checkpoints do not have the state of the optimizers that the "
            f"program keeps ({', '.join(of_program)}): make each an attribute of the model"
        )
    speed_advice.advise(loop, model, dataset)


def _check_batches(model: Any, features: Any, loop: Loop) -> None:
    """Raises Failure where the dataset gives single examples to a model that knows its inputs."""
    for spec, tensor in zip(tf.nest.flatten(features), tf.nest.flatten(getattr(model, "inputs", None))):
        shape = getattr(tensor, "shape", None)
        if shape is None or not isinstance(spec, tf.TensorSpec) or spec.shape.rank is None:
            continue
        if list(shape)[1:] == list(spec.shape) and None not in spec.shape:
            raise program_error(
                f"{loop.program.entrypoint}: train_dataset() gives {list(spec.shape)}, a single example, and "
                f"model() takes batches of them, {list(shape)}: end the dataset with .batch(batch_size)"
            )


def _check_batch_dimension(model: Any, features: Any, loop: Loop) -> None:
    """Raises Failure where the model was made for single examples. Keras makes one that is first called on a
    batch for batches of that size, and takes other ones.
    """
    given, wanted = tf.nest.flatten(features), tf.nest.flatten(getattr(model, "inputs", None))
    for spec, tensor in zip(given, wanted):
        shape = getattr(tensor, "shape", None)
        if shape is None or not isinstance(spec, tf.TensorSpec) or spec.shape.rank is None:
            continue
        shape, data = list(shape), list(spec.shape)
        if len(shape) == len(data) - 1 and shape == data[1:]:
            raise _no_batch(loop, f"takes {shape}, a single example, and train_dataset() gives {data}")
    for tensor in tf.nest.flatten(getattr(model, "outputs", None)):
        shape = getattr(tensor, "shape", None)
        if shape is not None and len(shape) == 0:
            raise _no_batch(loop, "returns a scalar for a batch, not a prediction for each of its examples")


def _no_batch(loop: Loop, what: str) -> Failure:
    return program_error(
        f"{loop.program.entrypoint}: model() has no batch dimension: it {what}; leave it open, as "
        "tf.keras.Input(shape) without a batch_size does"
    )
