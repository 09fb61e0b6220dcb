"""How many orders of a shuffled dataset a script has used up, as in one process.

Each iteration of a shuffled dataset has its next order. What the runtime begins for a call of the script is
another number, and depends on how far it reads ahead. So from the second use on the data are read from a
copy, which begins with the order that is due: that of one process, and the same in tasks that share batches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from worker.input import fit_iterations
from worker.tf_compat import graphs
from worker.tf_compat.replaced_methods import replace


@dataclass
class _Orders:
    """Of `shuffled`, which is kept so that its identity is. `is_next`: the dataset itself has the order that
    is due.
    """

    shuffled: Any
    count: int = 0
    is_next: bool = True


_orders: dict[int, _Orders] = {}


def count(is_script: Callable[[], bool], due: Callable[[Any], Any]) -> None:
    """Has the iterations that begin while `is_script()` counted from now on. They read `due(dataset)`."""
    original = tf.data.Dataset.__iter__

    @functools.wraps(original)
    def counted(dataset: Any) -> Any:
        if not is_script() or (orders := _of(dataset)) is None:
            return original(dataset)
        iterator = original(due(dataset))
        orders.count += 1
        return iterator

    replace(tf.data.Dataset, __iter__=counted)


def add(dataset: Any, count: int) -> None:
    """A call has used up so many orders of `dataset`, while the runtime has read others."""
    if (orders := _of(dataset)) is not None:
        orders.count += count
        orders.is_next = False


def of(dataset: Any) -> int:
    """Returns how many are used up; 0 where nothing is shuffled."""
    orders = _orders.get(id(graphs.shuffled(dataset)))
    return 0 if orders is None else orders.count


def are_next(dataset: Any) -> bool:
    """Returns whether an iteration of `dataset` itself has the order that is due."""
    orders = _orders.get(id(graphs.shuffled(dataset)))
    return orders is None or orders.is_next


def _of(dataset: Any) -> _Orders | None:
    shuffled = graphs.shuffled(dataset)
    return None if shuffled is None else _orders.setdefault(id(shuffled), _Orders(shuffled))


def by_fit(dataset: Any, steps: int | None, epochs: int, *, keras_3: bool, is_whole: bool = True) -> int:
    """Returns how many orders of `dataset` so many epochs of Keras' fit use up in one process, where `steps`
    are its steps_per_epoch. With them an epoch goes on where the one before ended. `is_whole` is false where
    the last epoch was stopped in its middle.
    """
    if (unread := fit_iterations.of_epochs(dataset, steps, epochs, keras_3=keras_3)) is not None:
        return unread.all(epochs) - (0 if is_whole else unread.after_each)
    taken, size = epochs * (steps or 0), int(dataset.cardinality())
    if (repeated := graphs.repeated(dataset)) is not None:
        source, packed = repeated
        elements = int(source.cardinality())
        return 1 + (taken * packed - 1) // elements if elements > 0 else 1
    return 1 + (taken // size if keras_3 and size > 0 else 0)


def by_scoring(dataset: Any, steps: int | None, *, keras_3: bool) -> int:
    """Returns how many orders of `dataset` one evaluate or predict uses up, for the reasons of `by_fit`."""
    return 1 if steps is not None or (keras_3 and int(dataset.cardinality()) < 0) else 2
