"""Keras 2's optimizers under ParameterServer, where several workers update the same variables at a time.

Some of them do an update in several operations, of which one reads what another has written. If a second
worker writes in between, its update is applied twice or lost. For instance, 300 steps of SGD with sparse
gradients on two workers moved a row by 383 steps and not by 300; without momentum too, since Keras then keeps
a momentum of 0. RMSprop with momentum moved 1.09 times as far as it should, its `centered` form gave NaN, and
Adadelta moved 0.55 times as far.

TensorFlow has operations that do the same update at once, under the locks of the variables. With them the
result is that of some order of the workers' updates. Adam, AdamW, Adagrad, Adamax, Nadam, Ftrl and RMSprop
without momentum are within 0.4% of that result without a change, dense or sparse: they scale each step by an
average over many. One effect of asynchronous training stays: a gradient belongs to weights of some updates
ago.

Private to tf_keras are the names of the slots, `_index_dict`, `_var_key`, and the formulas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def mend(optimizer: Any) -> None:
    """Has `optimizer` update in one operation, where it is one of Keras 2's that do not: at once where it is
    built, else when it is.

    A class of the program's own, with a step of its own, is not changed. Call it under the strategy's scope.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)  # a mixed-precision optimizer wraps another
    if isinstance(inner, tf.keras.optimizers.Optimizer) and not getattr(inner, "_built", False):
        inner.__dict__["build"] = _mending_build(inner)
        return
    update = _update(inner)
    if update is not None:
        # An attribute of the instance has precedence over the class's method.
        inner.__dict__["update_step"] = update


def _mending_build(optimizer: Any) -> Callable[[Any], None]:
    build = optimizer.build

    def build_and_mend(variables: Any) -> None:
        build(variables)
        del optimizer.__dict__["build"]
        mend(optimizer)

    return build_and_mend


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
        # It writes only the gradient's rows; scatter_add would let two workers write to one row at a time.
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
    """Updates by the centered form of RMSprop. `scratch` replaces the momentum where there is none."""
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
    """Returns the arguments that the operations of Adadelta and RMSprop share."""
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
    """Returns the gradient for all rows, on the variable's own device. Keras' step writes all rows there too,
    whatever rows the gradient has.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, variable.shape[0])


def _like(slot: Any) -> Any:
    with tf.distribute.get_strategy().extended.colocate_vars_with(slot):
        return tf.Variable(tf.zeros(slot.shape, slot.dtype), trainable=False, name="scratch")
