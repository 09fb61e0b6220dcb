"""Reads passes through the training data from the data workers, and knows what of a pass was read.

The data workers take one part of a pass after the other. Each example comes with the number of its part, in
which the order is fixed. So of an interrupted pass the first examples of each part were trained, and the next
attempt leaves those out, whichever data workers there are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from worker.input.batch_division import batch_count, cut
from worker.tf_compat.dataset_parts import DatasetParts

_PARTS = 2**20
"""More parts than there ever are: a place is `turn * _PARTS + part`."""
_MOST_BYTES = 16 * 2**20
"""Up to this size a dataset is registered anew for each pass. The dispatcher keeps what is registered."""


class PassProgress(NamedTuple):
    """How much of pass `turn`, from 0, is trained: `taken` has a number for each part, of examples, or of
    batches where those cannot be joined.
    """

    turn: int
    taken: Any

    @staticmethod
    def of(values: Any) -> PassProgress:
        """Returns what `values` had."""
        return PassProgress(int(values[0]), np.asarray(values[1:], np.int64))

    def values(self) -> Any:
        """Returns `int64[1 + parts]`, for a checkpoint."""
        return np.concatenate([[self.turn], self.taken]).astype(np.int64)


class PassReader:
    """Reads the passes of `parts`, which are cut into `count` parts, from `begun` on.

    `register(dataset)` returns an identifier, also in a graph; `read(identifier, element_spec, job)` a
    dataset. `join(dataset)` makes batches of the program's size of what data workers return; None where they
    cannot be joined.
    """

    def __init__(
        self,
        parts: DatasetParts,
        count: int,
        begun: PassProgress,
        job: str,
        register: Callable[[Any], Any],
        read: Callable[[Any, Any, Any], Any],
        join: Callable[[Any], Any] | None,
    ) -> None:
        self._parts, self._count, self._begun = parts, count, begun
        self._job, self._register, self._read, self._join = job, register, read, join
        self._is_tuple = isinstance(parts.element_spec, tuple)
        self._lock = threading.Lock()
        self._log: list[Any] = []
        self._folded, self._state = 0, begun
        varies = parts.reshuffles and parts.size <= _MOST_BYTES
        order = tf.constant(begun.turn if varies else 0, tf.int64)
        self._first = later = register(self._of_pass(order, begun.taken))
        if not varies and (np.any(begun.taken) or len(begun.taken) != count):
            later = register(self._of_pass(order, None))
        self._later = None if varies else later

    def passes(self) -> Any:
        """Returns the passes, one after the other without an end. Only one reader may do so."""

        def of_turn(turn: Any) -> Any:
            turn = tf.ensure_shape(tf.numpy_function(self._pass_begins, [turn], tf.int64), [])
            is_first = tf.equal(turn, self._begun.turn)
            identifier = tf.cond(is_first, lambda: self._first, lambda: self._identifier(turn))
            elements = self._of(identifier).map(lambda element, part: (element, turn * _PARTS + part))
            return elements if self._parts.is_repeated else self._joined(elements)

        endless = tf.data.Dataset.range(self._begun.turn, tf.int64.max).flat_map(of_turn)
        if self._parts.is_repeated:
            endless = self._joined(endless)
        return endless.map(self._noted)

    def one_pass(self) -> Any:
        """Returns the first pass."""
        return self._joined(self._of(self._first)).map(lambda element, _: element)

    def progress(self, batches: int) -> PassProgress:
        """Returns how far the passes are, when so many batches of `passes` are trained."""
        with self._lock:
            while self._log and (self._folded < batches or self._log[0].ndim == 0):
                entry = self._log.pop(0)
                if entry.ndim == 0:
                    self._state = self._fresh(int(entry))
                    continue
                self._folded += 1
                for turn, part in zip(*np.divmod(entry, _PARTS)):
                    if turn > self._state.turn:
                        self._state = self._fresh(int(turn))
                    if turn == self._state.turn:
                        self._state.taken[part] += 1
            return PassProgress(self._state.turn, self._state.taken.copy())

    def _fresh(self, turn: int) -> PassProgress:
        if turn == self._begun.turn:
            return PassProgress(turn, self._begun.taken.copy())
        return PassProgress(turn, np.zeros([self._count], np.int64))

    def _identifier(self, turn: Any) -> Any:
        return self._register(self._of_pass(turn, None)) if self._later is None else self._later

    def _of_pass(self, order: Any, taken: Any) -> Any:
        """Returns what the data workers carry out: the parts of a pass in an `order`, a number, without what
        was `taken` of each.
        """
        count = tf.constant(self._count if taken is None else len(taken), tf.int64)
        is_whole = taken is None or not np.any(taken)

        def of_part(number: Any) -> Any:
            part = self._parts.part(number, count, order)
            if not is_whole:
                part = self._left(part, tf.gather(taken, number))
            return part.map(lambda *values: self._placed(self._element(values), number))

        return tf.data.Dataset.range(count).flat_map(of_part).prefetch(tf.data.AUTOTUNE)

    def _left(self, part: Any, taken: Any) -> Any:
        """Returns `part` without its first examples."""
        if self._join is None:
            return part.skip(taken)

        def rest(left: Any, element: Any) -> Any:
            size = tf.cast(batch_count(element), tf.int64)
            without = tf.minimum(left, size)
            return left - without, (size > without, cut(element, without, size - without))

        return part.scan(taken, rest).filter(lambda some, _: some).map(lambda _, element: element)

    def _placed(self, element: Any, number: Any) -> Any:
        if self._join is None:
            return element, tf.expand_dims(number, 0)
        return element, tf.fill([batch_count(element)], number)

    def _of(self, identifier: Any) -> Any:
        """Returns what a new job reads. Who reads a job anew finds only what is over."""
        now = tf.strings.as_string(tf.timestamp(), precision=6)
        return self._read(identifier, self._spec, tf.strings.join([self._job, now], "-"))

    @property
    def _spec(self) -> Any:
        element = self._parts.element_spec
        if self._join is None:
            return element, tf.TensorSpec([1], tf.int64)
        element = tf.nest.map_structure(
            lambda spec: tf.TensorSpec([None, *spec.shape[1:]], spec.dtype), element
        )
        return element, tf.TensorSpec([None], tf.int64)

    def _joined(self, dataset: Any) -> Any:
        return dataset if self._join is None else self._join(dataset)

    def _element(self, values: tuple[Any, ...]) -> Any:
        return values if self._is_tuple else values[0]

    def _noted(self, element: Any, places: Any) -> Any:
        noted = tf.numpy_function(self._batch_comes, [places], tf.int64)
        with tf.control_dependencies([noted]):
            return tf.nest.map_structure(tf.identity, element)

    def _pass_begins(self, turn: Any) -> Any:
        if not self._parts.is_repeated:  # else a batch may yet come with the end of the pass before
            with self._lock:
                self._log.append(np.asarray(turn, np.int64))
        return turn

    def _batch_comes(self, places: Any) -> Any:
        with self._lock:
            self._log.append(np.array(places))
        return np.int64(0)
