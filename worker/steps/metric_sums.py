"""Sums of what steps add to metrics. The task that runs the steps keeps them, and they are added to the
metrics' variables later.

Each `assign_add` of a metric on a parameter server is a message for each step. A sum kept by the worker needs
none, and a sum returned as a value counts once however often its function was tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import tensorflow as tf

from worker.tf_compat import keras_3
from worker.tf_compat.replaced_methods import replaced


class Sums:
    """The sums for those variables of `metrics` to which Keras' own metrics only add.

    A metric of the program's own class may read what it wrote, so its variables have no sums.
    """

    def __init__(self, metrics: Iterable[Any]) -> None:
        variables_by_id = {
            id(variable): variable
            for metric in keras_3.leaves(metrics)
            if type(metric).__module__.startswith("tf_keras.") or keras_3.only_adds(metric)
            for variable in metric.variables
        }
        self._variables = list(variables_by_id.values())

    def zeros(self) -> list[Any]:
        """Returns the sums before the first step."""
        return [tf.zeros(variable.shape, variable.dtype) for variable in self._variables]

    @contextmanager
    def collected(self) -> Iterator[list[Any]]:
        """Redirects additions that are traced in the block to the list that it yields."""
        sums = self.zeros()
        with ExitStack() as stack:
            for index, variable in enumerate(self._variables):
                stack.enter_context(replaced(variable, assign_add=_Adding(sums, index)))
            yield sums

    def add(self, sums: Sequence[Any]) -> None:
        """Adds `sums` to the variables."""
        for variable, addend in zip(self._variables, sums):
            variable.assign_add(addend)


class _Adding:
    def __init__(self, sums: list[Any], index: int) -> None:
        self._sums = sums
        self._index = index

    def __call__(self, delta: Any, *arguments: Any, **options: Any) -> Any:
        self._sums[self._index] += tf.cast(delta, self._sums[self._index].dtype)
        return self._sums[self._index]
