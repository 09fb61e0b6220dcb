"""The transfer of a step's variables from the parameter servers, and of its gradients to them.

Each variable that a worker reads takes a message from its ps, and each gradient one to the ps: for a small
model they take most of a step's time. Small variables of one ps are read together, at the beginning of a
step, and their gradients are sent together.
"""

from __future__ import annotations

import collections
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import tensorflow as tf

from worker.tf_compat import keras_models
from worker.tf_compat.graphs import may_change
from worker.tf_compat.replaced_methods import read_before

_LARGEST_BYTES = 256 << 10
"""Limit of a variable's size: to copy a larger one together with others costs more than a message
of its own.
"""


class Exchange:
    """Uses one message for each variable and each gradient, under any strategy."""

    @contextmanager
    def reading(self, tape: tf.GradientTape, variables: Sequence[Any]) -> Iterator[list[Any]]:
        """Wraps a forward pass under `tape`. Yields the tensors to differentiate by, one for each
        variable.
        """
        del tape
        yield list(variables)

    def apply(self, optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """Has `optimizer` apply the gradients. There are none where all layers are frozen."""
        if not variables:
            warnings.warn("the model has no trainable weights", stacklevel=2)
            return
        keras_models.begin_trace(optimizer)
        optimizer.apply_gradients(zip(gradients, variables))


class Together(Exchange):
    """Uses one message for all small variables of a ps, and one for their gradients.

    It is for one replica, where no code of the program is between gradients and variables. `learning_rate` is
    a constant in place of the optimizer's variable, which each ps but one would have to fetch at every step;
    None keeps the variable. The first trace is that of `Exchange`; it finds the variables from which only
    rows are looked up.
    """

    def __init__(self, learning_rate: float | None) -> None:
        self._learning_rate = learning_rate
        self._groups: list[list[int]] | None = None

    @contextmanager
    def reading(self, tape: tf.GradientTape, variables: Sequence[Any]) -> Iterator[list[Any]]:
        """Reads each variable once: a step that reads one twice gets the same value. One that the forward
        pass may change, as spectral normalization does, is not read together with others.
        """
        sources, read = list(variables), []
        with tape.stop_recording():
            for group in self._groups or []:
                together = [keras_models.tf_variable(variables[index]) for index in group]
                for index, variable, value in zip(group, together, _fetched(together)):
                    sources[index] = value
                    read.append((variable, value))
        with ExitStack() as stack:
            for variable, value in read:
                tape.watch(value)
                stack.enter_context(read_before(variable, value))
            yield sources

    def apply(self, optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """Applies the gradients of a group on the group's ps."""
        if self._groups is None:
            # Clipping would happen on the worker.
            can = keras_models.takes_gradients_as_they_are(optimizer) and not _calls_functions()
            self._groups = _groups(gradients, variables) if can else []
            super().apply(optimizer, gradients, variables)
            return
        sent = list(gradients)
        for group in self._groups:
            together = [keras_models.tf_variable(variables[index]) for index in group]
            values = _sent([gradients[index] for index in group], together)
            for index, value in zip(group, values):
                sent[index] = value
        with keras_models.fixed_rate(optimizer, self._learning_rate):
            if not self._groups:
                super().apply(optimizer, gradients, variables)
                return
            keras_models.begin_trace(optimizer)
            keras_models.apply_sums(optimizer, zip(sent, variables))


def _calls_functions() -> bool:
    """Returns whether the step calls a tf.function, which is traced once and would keep one step's values for
    the next.
    """
    operations = tf.compat.v1.get_default_graph().get_operations()
    return any(operation.type.endswith("PartitionedCall") for operation in operations)


def _groups(gradients: Sequence[Any], variables: Sequence[Any]) -> list[list[int]]:
    """Returns the indices of variables that are read together: two or more of one ps and type."""
    groups: dict[tuple[str, Any], list[int]] = collections.defaultdict(list)
    for index, (gradient, variable) in enumerate(zip(gradients, map(keras_models.tf_variable, variables))):
        if not isinstance(variable, tf.Variable) or may_change(variable):
            continue  # the first are split over the ps
        is_small = variable.shape.num_elements() * variable.dtype.size <= _LARGEST_BYTES
        # A variable from which only rows are looked up has sparse gradients, and is never read as a whole.
        if isinstance(gradient, tf.Tensor) and gradient.dtype == variable.dtype and is_small:
            groups[variable.device, variable.dtype].append(index)
    return [group for group in groups.values() if len(group) > 1]


def _fetched(variables: Sequence[Any]) -> list[Any]:
    with tf.device(variables[0].device):
        packed = tf.concat([tf.reshape(variable.read_value(), [-1]) for variable in variables], 0)
    return _unpacked(packed, variables)


def _sent(gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
    packed = tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], 0)
    with tf.device(variables[0].device):
        return _unpacked(packed, variables)  # a trace may not know the shape of a gradient


def _unpacked(packed: Any, like: Sequence[Any]) -> list[Any]:
    pieces = tf.split(packed, [tensor.shape.num_elements() for tensor in like])
    return [tf.reshape(piece, tensor.shape) for piece, tensor in zip(pieces, like)]
