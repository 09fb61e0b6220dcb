"""Whether a model looks up rows of a variable, as an embedding does, and how many for each batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import tensorflow as tf

from worker.context import Loop
from worker.input.batch_size import of_size
from worker.tf_compat.graphs import lookup_shapes
from worker.tf_compat.keras_models import has_own


def has_sparse_gradients(loop: Loop, model: Any, element: Any) -> bool:
    """Returns whether the model looks up rows of a variable, as an embedding does. It traces the model, and
    does not run it.

    The gradient of such a variable has a row for each look-up. A look-up in another tensor counts too:
    outside of a replica, TensorFlow reads a mirrored variable like any tensor.
    """
    return bool(_lookup_shapes(loop, model, element))


def rows_vary(loop: Loop, model: Any, element: Any) -> bool:
    """Returns whether batches of one size may look up different numbers of rows, as those of sequences
    do whose lengths differ: ragged ones, or ones padded to the longest of the batch. See
    `has_sparse_gradients`.
    """
    return not all(shape.is_fully_defined() for shape in _lookup_shapes(loop, model, element))


def has_losses(loop: Loop, model: Any, element: Any) -> bool:
    """Returns whether the model has losses beside the compiled one. A layer's `add_loss` counts all rows of a
    batch; a regularizer of weights does not, and is not told apart. It traces the model, and does not run it.
    """
    if model.run_eagerly:
        return True
    added: list[bool] = []

    def forward(features: Any) -> None:
        model(features, training=True)
        added.append(bool(model.losses))  # each replica's thread has its own

    step = tf.function(lambda features: loop.strategy.run(forward, args=(features,)))
    step.get_concrete_function(_features_of(of_size(element, loop.part_size)))
    return any(added)


def _features_of(element: Any) -> Any:
    return element[0] if isinstance(element, tuple) else element


def _lookup_shapes(loop: Loop, model: Any, element: Any) -> list[Any]:
    if model.run_eagerly:
        return [tf.TensorShape(None)]  # it may do what no graph can: any look-up is possible
    element = of_size(element, loop.part_size)
    program, size = loop.program, loop.parameters.global_batch_size
    # An own step may call the model's parts, or the model with something else.
    step: Callable[..., Any]
    if program.has("train_step"):
        step = partial(program.train_step, model, global_batch_size=size)
    elif has_own(model, "train_step") and not getattr(model, "inputs", None):
        step = model.train_step
    else:
        step = partial(model, training=False)
        element = _features_of(element)
    traced = tf.function(lambda batch: loop.strategy.run(step, args=(batch,)))
    return lookup_shapes(traced.get_concrete_function(element).graph)
