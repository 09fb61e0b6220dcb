"""Makes a model's variables before it is trained, evaluated or exported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from worker.failures import program_error, sentence
from worker.input import replica_shares
from worker.input.batch_division import copied
from worker.tf_compat import keras_3, keras_models
from worker.tf_compat.keras_models import has_own, is_keras_3
from worker.tf_compat.strategies import worker_count


def build(model: Any, element: Any, entrypoint: str, *, computes: bool = True) -> None:
    """Makes the variables of `model`, as the first step of a training would.

    `element` is the `element_spec` of its data: features, or a tuple that begins with them. A model that has
    its variables is not changed. A subclassed model learns the shape of its input when it is called, and only
    then can it be exported. Unless it `computes`, that call is traced. One whose own steps call its parts,
    and which has no `call`, must have all its variables. Raises Failure where the element's shape is not
    enough.
    """
    if model.built and getattr(model, "inputs", None):
        return
    if not has_call(model):
        has_variables = keras_models.has_trainable_variables(model)
        error = None if has_variables else _build_by_steps(model, _with_open_batch(element))
        if error is not None or not keras_models.has_trainable_variables(model):
            why = "" if error is None else f"its own step fails ({sentence(error)}); mend that, or "
            raise program_error(
                f"{entrypoint}: model() returned a {type(model).__name__} without call(), with parts that "
                f"have no variables yet: {why}make them there, by an Input for each part or by calling it "
                "once"
            ) from error
        model.built = True
        return
    element = _with_open_batch(element)
    features = element[0] if isinstance(element, tuple) else element
    try:
        if keras_models.builds_by_shape(model) and isinstance(features, tf.TensorSpec):
            model.build((None, *features.shape[1:]))
        elif is_keras_3(model) and computes:
            model(tf.nest.map_structure(keras_3.zeros_of, features))
        elif is_keras_3(model):
            tf.function(lambda inputs: model(inputs)).get_concrete_function(features)
        else:
            # Tracing computes nothing, and Keras makes the variables outside of the trace.
            tf.function(lambda inputs: model(inputs, training=False)).get_concrete_function(features)
            if isinstance(element, Mapping) and has_own(model, "train_step"):
                with keras_models.signature_learnt(model):  # its step may take the labels out
                    _build_by_steps(model, element)
    except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
        if model.built and has_own(model, "train_step"):
            _build_by_steps(model, element)  # its own step calls it with something else
            return
        if not isinstance(error, ValueError):
            raise
        raise program_error(
            f"{entrypoint}: the variables of model() depend on data: give its first layer an input "
            f"shape, or call it once on a batch before returning it ({sentence(error)})"
        ) from error


def _build_by_steps(model: Any, element: Any) -> Exception | None:
    """Traces a step of the model's own, which computes nothing, so that its parts make their variables.
    Returns the last error where no trace succeeds.
    """
    strategy, failed = tf.distribute.get_strategy(), None
    if is_keras_3(model) and strategy.num_replicas_in_sync > worker_count(strategy):
        return None  # Keras 3 (3.15) makes wrong variables in the threads of several replicas
    for name in ("test_step", "train_step"):

        def step(batch: Any, name: str = name) -> None:
            with replica_shares.of(None):
                getattr(model, name)(copied(batch))

        if has_own(model, name):
            try:
                traced = tf.function(lambda batch, step=step: strategy.run(step, args=(batch,)))
                traced.get_concrete_function(element)
            except Exception as error:  # noqa: BLE001 - whatever the program raises is told
                failed = error
            else:
                return None
    return failed


def has_call(model: Any) -> bool:
    """Returns whether `model` can be called. One that is trained by its own steps alone need not be."""
    return has_own(model, "call")


def _with_open_batch(element: Any) -> Any:
    """Returns the spec without the number of examples, where batches of one size say it: Keras 2 would make
    the inputs of a model for that number, and a replica gets fewer.
    """

    def size(spec: Any) -> int | None:
        return spec.shape[0] if isinstance(spec, tf.TensorSpec) and spec.shape.rank else None

    examples = size(tf.nest.flatten(element)[0])

    def opened(spec: Any) -> Any:
        if examples is None or size(spec) != examples:
            return spec
        return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype, spec.name)

    return tf.nest.map_structure(opened, element)
