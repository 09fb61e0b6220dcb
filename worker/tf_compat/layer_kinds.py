"""The layers of a model whose results are others on several replicas than on one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

from worker.tf_compat import keras_models

_STRENGTHS = ("rate", "stddev", "dropout", "recurrent_dropout")
"""The attributes of a layer that say how much it draws."""


def by_replica_statistics(model: Any) -> list[Any]:
    """Returns the layers that normalize by the statistics of a replica's examples."""
    kind = keras_models.keras_of(model).layers.BatchNormalization
    return [
        each for each in layers(model) if isinstance(each, kind) and not getattr(each, "synchronized", False)
    ]


def synchronize(layer: Any) -> None:
    """Has a layer of `by_replica_statistics` normalize by those of all replicas."""
    layer.synchronized = True
    if not keras_models.is_keras_3(layer):
        layer.fused = False  # which would not ask the other replicas


def random_layers(model: Any) -> list[Any]:
    """Returns the layers that draw random numbers in a training step."""
    return [each for each in layers(model) if each is not model and _draws(each)]


def leave_out_randomness(layer: Any) -> None:
    """Has a layer do in training what it does elsewhere, where it makes that difference."""
    original = layer.call
    if "training" not in inspect.signature(original).parameters:
        return

    @functools.wraps(original)
    def call(*arguments: Any, **named: Any) -> Any:
        bound = inspect.signature(original).bind(*arguments, **named)
        bound.arguments["training"] = False
        return original(*bound.args, **bound.kwargs)

    layer.__dict__["call"] = call


def computes_in_half(model: Any) -> bool:
    """Returns whether a layer computes in 16 bits."""
    return any("float16" in str(getattr(each, "compute_dtype", "")) for each in layers(model))


def layers(model: Any) -> Iterator[Any]:
    """Yields `model` and all layers in it."""
    yield from model._flatten_layers()


def _draws(layer: Any) -> bool:
    is_3 = keras_models.is_keras_3(layer)
    generators = getattr(layer, "_seed_generators" if is_3 else "_random_generator", None)
    strengths = [getattr(layer, name) for name in _STRENGTHS if hasattr(layer, name)]
    return bool(generators) and (not strengths or any(strengths))
