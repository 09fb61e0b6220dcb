"""How much memory a training's variables take, and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from worker.tf_compat import keras_models


def by_device(variables: Iterable[Any]) -> Counter[str]:
    """Returns the bytes on each device."""
    sizes: Counter[str] = Counter()
    for piece in pieces(variables):
        sizes[_replica(piece).device] += size(piece)
    return sizes


def of_optimizer(optimizer: Any) -> list[Any]:
    """Returns the variables of an optimizer of either Keras, or of none."""
    variables = getattr(optimizer, "variables", [])
    return list(variables() if callable(variables) else variables)


def size(variable: Any) -> int:
    """Returns the size in bytes."""
    return (variable.shape.num_elements() or 0) * int(variable.dtype.size)


def pieces(variables: Iterable[Any]) -> Iterator[Any]:
    """Yields TensorFlow's variables in those of a model or an optimizer."""
    for variable in map(keras_models.tf_variable, variables):
        for piece in getattr(_replica(variable), "variables", [variable]):
            # Keras 2's handler of an adapted vocabulary is none, but a table on every worker.
            if isinstance(piece, tf.Variable):
                yield piece


def _replica(variable: Any) -> Any:
    """Returns the first replica's part of a variable that replicas have: to look for an attribute of the
    whole may sum it up over the tasks of a collective, which must all do that at once.
    """
    return variable.values[0] if isinstance(variable, tf.distribute.DistributedValues) else variable
