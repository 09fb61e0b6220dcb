"""Whether a model looks up rows of a variable, as an embedding does, and how many for each batch."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from worker.input.batch_size import of_size
from worker.tf_compat.graphs import lookup_shapes
from worker.tf_compat.keras_models import has_own


def has_sparse_gradients(strategy: Any, model: Any, element: Any) -> bool:
    """Returns whether the model looks up rows of a variable, as an embedding does. It traces the model, and
    does not run it.

    The gradient of such a variable has a row for each look-up. A look-up in another tensor counts too:
    outside of a replica, TensorFlow reads a mirrored variable like any tensor.
    """
    return bool(_lookup_shapes(strategy, model, element))


def rows_vary(strategy: Any, model: Any, element: Any, size: int) -> bool:
    """Returns whether batches of the same `size` may look up different numbers of rows, as those of sequences
    do whose lengths differ: ragged ones, or ones padded to the longest of the batch. See
    `has_sparse_gradients`.
    """
    return not all(
        shape.is_fully_defined() for shape in _lookup_shapes(strategy, model, of_size(element, size))
    )


def _lookup_shapes(strategy: Any, model: Any, element: Any) -> list[Any]:
    features = element[0] if isinstance(element, tuple) else element
    traced = tf.function(lambda inputs: model(inputs, training=False))
    if has_own(model, "train_step") and not getattr(model, "inputs", None):
        # It may call its parts, or itself with something else.
        traced = tf.function(lambda batch: strategy.run(model.train_step, args=(batch,)))
        features = element
    return lookup_shapes(traced.get_concrete_function(features).graph)
