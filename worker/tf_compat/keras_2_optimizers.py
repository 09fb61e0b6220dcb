"""Keras 2's optimizers under ParameterServer, where several workers update the same variables at a time.

Some of them do an update in several operations, of which one reads what another has written. What a second
worker writes in between is then applied twice, or lost: 300 steps of SGD with sparse gradients on two workers
moved a row by 383 and not by 300 steps; without momentum too, since Keras keeps one of 0. RMSprop with
momentum came to 1.09 times its way and its `centered` form to NaN; Adadelta to 0.55 times.

TensorFlow has operations that do the same update whole, under the locks of the variables. With them the
result is that of some order of the workers' updates. Adam, AdamW, Adagrad, Adamax, Nadam, Ftrl and RMSprop
without momentum come within 0.4% of it as they are, dense or sparse: they scale each step by an average over
many. What stays is what asynchronous training means: a gradient is one of weights some updates ago.

What here is private to tf_keras: the names of the slots, `_index_dict`, `_var_key`, and the formulas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def mend(optimizer: Any) -> None:
    """Has a built `optimizer` update in one operation, where it is one of Keras 2's that do not.

    A class of the program's own, with a step of its own, is left alone. Under the strategy's scope.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)  # mixed precision's wraps another
    update = _update(inner)
    if update is not None:
        # An attribute of the instance goes before the class's method.
        inner.__dict__["update_step"] = update


def _update(optimizer: Any) -> Callable[[Any, Any], None] | None:
    kinds = tf.keras.optimizers
    step = type(optimizer).__dict__.get("update_step") or getattr(type(optimizer), "update_step", None)
    if step is kinds.SGD.update_step:
        return lambda gradient, variable: _sgd(optimizer, gradient, variable)
    if step is kinds.Adadelta.update_step:
        return lambda gradient, variable: _adadelta(optimizer, gradient, variable)
    if step is kinds.RMSprop.update_step and optimizer.centered:
        scratch = [] if optimizer.momentum else [_like(slot) for slot in optimizer._velocities]
        return lambda gradient, variable: _centered(optimizer, scratch, gradient, variable)
    if step is kinds.RMSprop.update_step and optimizer.momentum:
        return lambda gradient, variable: _rmsprop(optimizer, gradient, variable)
    return None


def _sgd(optimizer: Any, gradient: Any, variable: Any) -> None:
    rate = tf.cast(optimizer.learning_rate, variable.dtype)
    momentum = tf.cast(optimizer.momentum, variable.dtype)
    (slot,) = _slots(optimizer, variable, optimizer.momentums)
    has_none = isinstance(optimizer.momentum, (int, float)) and optimizer.momentum == 0
    if has_none and not isinstance(gradient, tf.IndexedSlices):
        variable.assign_add(-rate * gradient)
    elif has_none:
        # Only its rows; scatter_add would let two workers write to one row at a time.
        tf.raw_ops.ResourceSparseApplyKerasMomentum(
            var=variable.handle,
            accum=slot.handle,
            lr=rate,
            grad=gradient.values,
            indices=gradient.indices,
            momentum=momentum,
            use_locking=True,
        )
    else:
        tf.raw_ops.ResourceApplyKerasMomentum(
            var=variable.handle,
            accum=slot.handle,
            lr=rate,
            grad=_dense(gradient, variable),
            momentum=momentum,
            use_nesterov=optimizer.nesterov,
            use_locking=True,
        )


def _adadelta(optimizer: Any, gradient: Any, variable: Any) -> None:
    squares, deltas = _slots(
        optimizer, variable, optimizer._accumulated_grads, optimizer._accumulated_delta_vars
    )
    tf.raw_ops.ResourceApplyAdadelta(
        accum=squares.handle,
        accum_update=deltas.handle,
        **_common(optimizer, gradient, variable),
    )


def _rmsprop(optimizer: Any, gradient: Any, variable: Any) -> None:
    squares, momentum = _slots(optimizer, variable, optimizer._velocities, optimizer._momentums)
    tf.raw_ops.ResourceApplyRMSProp(
        ms=squares.handle,
        mom=momentum.handle,
        momentum=tf.cast(optimizer.momentum, variable.dtype),
        **_common(optimizer, gradient, variable),
    )


def _centered(optimizer: Any, scratch: list[Any], gradient: Any, variable: Any) -> None:
    """`scratch` stands for the momentum where there is none."""
    squares, averages, momentum = _slots(
        optimizer,
        variable,
        optimizer._velocities,
        optimizer._average_gradients,
        scratch or optimizer._momentums,
    )
    tf.raw_ops.ResourceApplyCenteredRMSProp(
        mg=averages.handle,
        ms=squares.handle,
        mom=momentum.handle,
        momentum=tf.cast(optimizer.momentum, variable.dtype),
        **_common(optimizer, gradient, variable),
    )


def _common(optimizer: Any, gradient: Any, variable: Any) -> dict[str, Any]:
    """What the operations of Adadelta and RMSprop have in common."""
    return {
        "var": variable.handle,
        "lr": tf.cast(optimizer.learning_rate, variable.dtype),
        "rho": tf.cast(optimizer.rho, variable.dtype),
        "epsilon": tf.cast(optimizer.epsilon, variable.dtype),
        "grad": _dense(gradient, variable),
        "use_locking": True,
    }


def _slots(optimizer: Any, variable: Any, *lists: list[Any]) -> list[Any]:
    index = optimizer._index_dict[optimizer._var_key(variable)]
    return [slots[index] for slots in lists]


def _dense(gradient: Any, variable: Any) -> Any:
    """On the variable's own device: Keras' step writes all rows there too, whatever rows the gradient has."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, variable.shape[0])


def _like(slot: Any) -> Any:
    with tf.distribute.get_strategy().extended.colocate_vars_with(slot):
        return tf.Variable(tf.zeros(slot.shape, slot.dtype), trainable=False, name="scratch")
