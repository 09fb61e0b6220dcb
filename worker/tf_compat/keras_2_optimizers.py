"""What Keras 2's optimizers do otherwise under ParameterServer.

They apply a variable's constraint as an update of its own. And SGD without momentum, for which Keras 2 keeps
a momentum of 0 and so writes a whole table and its momentum, writes the rows of its gradients alone: with an
embedding of 50,000 rows, a step on two workers took 1.9 times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from worker.tf_compat import keras_models
from worker.tf_compat.exclusive_updates import constraining


def mend(optimizer: Any) -> None:
    """Changes `optimizer` where it is one of Keras 2's, and not of tf.keras.optimizers.legacy.

    A class of the program's own keeps a step of its own.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)  # a mixed-precision optimizer wraps another
    keras = keras_models.keras_of(inner)
    if not isinstance(inner, keras.optimizers.Optimizer):
        return
    # An attribute of the instance has precedence over the class's method.
    inner.__dict__["apply_gradients"] = _applying(inner.apply_gradients)
    plain = keras.optimizers.SGD
    is_plain = isinstance(inner, plain) and type(inner).update_step is plain.update_step
    if is_plain and isinstance(inner.momentum, (int, float)) and inner.momentum == 0:
        inner.__dict__["update_step"] = _step(inner)


def _applying(apply: Callable[..., Any]) -> Callable[..., Any]:
    def apply_gradients(grads_and_vars: Iterable[tuple[Any, Any]], *arguments: Any, **options: Any) -> Any:
        pairs = list(grads_and_vars)
        with constraining([gradient for gradient, _ in pairs], [variable for _, variable in pairs]):
            return apply(pairs, *arguments, **options)

    return apply_gradients


def _step(optimizer: Any) -> Callable[[Any, Any], None]:
    def update_step(gradient: Any, variable: Any) -> None:
        rate = tf.cast(optimizer.learning_rate, variable.dtype)
        if isinstance(gradient, tf.IndexedSlices):
            variable.scatter_sub(tf.IndexedSlices(rate * gradient.values, gradient.indices))
        else:
            variable.assign_sub(rate * gradient)

    return update_step
