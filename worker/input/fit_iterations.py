"""Which iteration of a shuffled dataset each epoch of Keras' `fit` reads.

Each iteration has the next order, whether it is read or only begun. Keras 2 begins one before the first
epoch, and Keras 3 one after each epoch of data of known size. Source: tf_keras 2.21
data_adapter.DataHandler.enumerate_epochs, keras 3.15 epoch_iterator.EpochIterator._enumerate_iterator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from worker.parameters import TrainingParameters
from worker.program import LoadedProgram
from worker.tf_compat import graphs


@dataclass(frozen=True)
class Unread:
    """The iterations that `fit` begins and does not read: so many `before_first` epoch, and `after_each`. It
    reads one in each of its `epochs`.
    """

    before_first: int
    after_each: int
    epochs: int

    def before(self, passes: int) -> int:
        """Returns how many there are before the pass with this number, from 0."""
        return self.before_first + passes * self.after_each

    def all(self, epochs: int) -> int:
        """Returns how many iterations so many epochs begin, those that they read with them."""
        return epochs + self.before(epochs)

    def later(self, dataset: Any, passes: int, *, to_the_end: bool) -> Any:
        """Returns what follows the pass with this number, with what is begun between the passes, and without
        an end. With `to_the_end` nothing is begun after the last epoch.
        """
        # .repeat(n) begins one more: here one of the empty dataset.
        each = begun(dataset, self.after_each).concatenate(dataset)
        if not to_the_end:
            return each.repeat()
        nothing = dataset.take(0).apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
        return each.repeat(max(0, self.epochs - passes - 1)).concatenate(nothing)


def of_fit(program: LoadedProgram, parameters: TrainingParameters, dataset: Any) -> Unread | None:
    """Returns those of the `fit` that would train the program's compiled model in one process. None for steps
    of the program's own, and where an epoch is no iteration of what is shuffled.
    """
    if not isinstance(dataset, tf.data.Dataset):
        return None
    if program.has("loss") or program.has("train_step") or not graphs.shuffles(dataset):
        return None
    epochs = parameters.epochs - parameters.initial_epoch
    return of_epochs(dataset, parameters.steps_per_epoch, epochs, keras_3=program.is_keras_3)


def of_epochs(dataset: Any, steps: int | None, epochs: int, *, keras_3: bool) -> Unread | None:
    """Returns those of so many epochs of a `fit` with this steps_per_epoch. None where an epoch is no
    iteration.
    """
    size = int(dataset.cardinality())
    if size == tf.data.INFINITE_CARDINALITY or steps not in (None, size):
        return None
    if not keras_3:
        return Unread(1, 0, epochs)
    return Unread(0, int(size >= 0), epochs) if steps is None else None


def begun(dataset: Any, count: int) -> Any:
    """Returns an empty dataset, whose end is reached when `count` iterations of `dataset` are begun."""

    def one(_: Any) -> Any:
        return tf.data.Dataset.choose_from_datasets([dataset], tf.data.Dataset.range(0))

    return tf.data.Dataset.range(count).flat_map(one)
