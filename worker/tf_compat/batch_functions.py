"""Compiled losses and metrics of the program's own that are one number for a batch, such as a root of a mean
square, Dice's coefficient or R2: with several replicas they get the global batch, and not a replica's part.

A loss that is a mean or a sum over the examples needs no other replica's: the parts add up.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from worker.tf_compat import keras_models
from worker.tf_compat.replaced_methods import replace

Gather = Callable[..., tuple[Any, ...]]
_KERAS = ("keras.", "tf_keras.")


def mend(gather: Gather, adds_up: Callable[[Any], bool]) -> None:
    """Has the functions get the global batch. `gather` returns its arguments, each `[rows, ...]` of this
    replica, with the rows of all replicas; `adds_up` says of a loss, a scalar of a trace, whether those of
    the replicas add up. Those of metrics do so only where the replicas have equally many examples.

    Call it when the model is made: a Keras that nothing has imported by then is left alone.
    """
    losses, metrics = [], []
    if "keras" in sys.modules:
        from keras.src.losses.losses import LossFunctionWrapper
        from keras.src.metrics.reduction_metrics import MeanMetricWrapper

        losses.append(LossFunctionWrapper)
        metrics.append(MeanMetricWrapper)
    if "tf_keras" in sys.modules:
        from tf_keras.src.losses import LossFunctionWrapper as LossFunction
        from tf_keras.src.metrics.base_metric import MeanMetricWrapper as MeanMetric

        losses.append(LossFunction)
        metrics.append(MeanMetric)
    for kind in losses:
        if not hasattr(kind.call, "of_part"):
            replace(kind, call=_with_whole_batch(kind.call, "fn", gather, adds_up))
    for kind in metrics:
        if not hasattr(kind.update_state, "of_part"):
            updates = _with_whole_batch(kind.update_state, "_fn", gather, lambda _: False)
            replace(kind, update_state=updates)


def has_own(model: Any) -> bool:
    """Returns whether `model` was compiled with a function of the program's own as a loss or metric."""
    if keras_models.is_keras_3(model):
        loss, metrics = getattr(model, "_compile_loss", None), getattr(model, "_compile_metrics", None)
        given = [getattr(loss, "_user_loss", None)]
    else:
        loss, metrics = getattr(model, "compiled_loss", None), getattr(model, "compiled_metrics", None)
        given = [getattr(loss, "_user_losses", None)]
    given += [getattr(metrics, name, None) for name in ("_user_metrics", "_user_weighted_metrics")]
    return any(map(_is_own, tf.nest.flatten(given)))


def _is_own(given: Any) -> bool:
    # Objects of Keras' classes, and of the program's own subclasses, are no functions that Keras wraps.
    is_object = hasattr(given, "update_state") or hasattr(given, "reduction")
    return callable(given) and not (is_object or _is_of_keras(given))


def _with_whole_batch(original: Any, attribute: str, gather: Gather, adds_up: Callable[[Any], bool]) -> Any:
    @functools.wraps(original)
    def called(self: Any, *arguments: Any, **named: Any) -> Any:
        function = getattr(self, attribute)
        if not (hasattr(function, "of_part") or _is_of_keras(function)):
            # It stays: the replicas, each in a thread, take turns while a step is traced.
            replace(self, **{attribute: _of_whole_batch(function, gather, adds_up)})
        return original(self, *arguments, **named)

    called.of_part = original  # type: ignore[attr-defined]
    return called


def _of_whole_batch(function: Any, gather: Gather, adds_up: Callable[[Any], bool]) -> Any:
    @functools.wraps(function)
    def called(y_true: Any, y_pred: Any, **options: Any) -> Any:
        replica = tf.distribute.get_replica_context()
        has_others = replica is not None and replica.num_replicas_in_sync > 1
        if has_others and _is_of_batch(function, y_true, y_pred, options, adds_up):
            y_true, y_pred = gather(y_true, y_pred)
        return function(y_true, y_pred, **options)

    called.of_part = function  # type: ignore[attr-defined]
    return called


def _is_of_keras(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).startswith(_KERAS)


def _is_of_batch(
    function: Any, y_true: Any, y_pred: Any, options: dict[str, Any], adds_up: Callable[[Any], bool]
) -> bool:
    """Tries `function`, in a graph in a trace that is not run. Returns whether it is one number for a batch,
    and its parts do not add up.
    """
    if not all(isinstance(value, tf.Tensor) and value.shape.rank for value in (y_true, y_pred)):
        return False
    if tf.executing_eagerly():  # it may ask tensors for their values
        return len(getattr(function(y_true, y_pred, **options), "shape", ())) == 0
    specs = [tf.TensorSpec(value.shape, value.dtype) for value in (y_true, y_pred)]
    traced = tf.function(lambda *parts: function(*parts, **options)).get_concrete_function(*specs)
    value = traced.structured_outputs
    return isinstance(value, tf.Tensor) and value.shape.rank == 0 and not adds_up(value)
