"""Batches that Python code makes: a PyDataset of Keras 3 or a Sequence of tf_keras, and generators.

The types of their batches are those of the first two, as in Keras: py_dataset_adapter.py and
generator_data_adapter.py of Keras 3, data_adapter.py of tf_keras.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from worker.data_adapters import arrays
from worker.data_adapters.array_orders import Order
from worker.failures import program_error
from worker.tf_compat import seeds

_LOOKED_AT = 2
"""How many batches tell the shapes. A dimension in which they differ is left open."""


_drawing = threading.RLock()
"""Held by who has seeded the random numbers of the process: different threads read the data of training and
evaluation.
"""


class Sequence:
    """See `numbered.Source`: the batches of a PyDataset or Sequence, which is asked for each by its number.

    An epoch has `epoch` batches, and the training `epochs`. At the beginning and end of each the `given` is
    told. What is drawn then, and for the order of a pass that is shuffled, is what Keras draws after a seed
    of the program's, else it depends on `seed`; what is drawn for a batch depends on the batch. `workers`
    threads read ahead.
    """

    def __init__(
        self,
        given: Any,
        standardize: Callable[[Any], Any],
        order: Order,
        seed: int,
        *,
        epoch: int | None,
        epochs: int | None,
        workers: int,
        keras_3: bool,
        call: str,
    ) -> None:
        self._given = given
        self._standardize = standardize
        self._seed = seed
        self._keras_3 = keras_3
        self._call = call
        self.batches = _length(given)
        if self.batches == 0:
            raise program_error(f"{call}: {arrays.described(given)} has no batch")
        self._epoch = epoch or self.batches
        self._epochs = epochs
        first = [self._fetched(number) for number in range(min(_LOOKED_AT, self.batches or _LOOKED_AT))]
        self.element = _element(first, call)
        self.size = _size(first[0])
        self._draws = _Draws(seed, goes_on=epochs is not None)
        self._begun = self._ended = 0
        self._is_shuffled = order.is_shuffled and self.batches is not None
        self._orders: list[Any] = []
        self._at = -1
        self._ahead = _Ahead(self._fetched, workers) if workers > 1 else None

    def read(self, number: int) -> Any:
        """See `numbered.Source`."""
        self._go_to(number)
        if self._ahead is not None:
            batch = self._ahead.get(self._places(number))
        else:
            place = next(self._places(number))
            with _seeded(self._seed, number):
                batch = self._fetched(place)
        _check(batch, self.element, self._call)
        batch = _copied(batch)
        if self._epoch is not None and (number + 1) % self._epoch == 0:
            self._end()
        return batch

    def use_up(self, epochs: int) -> None:
        """Leaves the process' random numbers, and what was given, as so many epochs of Keras' fit do."""
        if self._epoch is None or not epochs:
            return
        if (last := self._epoch * epochs - 1) > self._at:
            self._go_to(last)
        self._end()
        self._draws.leave()

    def _go_to(self, number: int) -> None:
        """Begins the epochs, and draws the orders of the passes, up to batch `number`, as Keras does."""
        if number <= self._at:
            self._at = number - 1  # it is read anew, as for another evaluation
        end = number + 1 if self._epoch is None or self._epochs is None else self._epochs * self._epoch
        for each in range(self._at + 1, min(number + 1, end)):
            if self._epoch is not None and each % self._epoch == 0:
                self._begin()
            if self._is_shuffled and each == len(self._orders) * (self.batches or 0):
                self._draw_order()
        self._at = number

    def _draw_order(self) -> None:
        order = list(range(self.batches or 0))
        with self._draws.drawing():
            random.shuffle(order)
        self._orders.append(np.array(order, np.int32))

    def _begin(self) -> None:
        self._end()
        if not self._begun and self._keras_3:
            self._tell("on_epoch_end")  # Keras 3 does so before the first epoch
        self._begun += 1
        self._tell("on_epoch_begin")

    def _end(self) -> None:
        if self._ended < self._begun:
            self._ended = self._begun
            self._tell("on_epoch_end")

    def _tell(self, hook: str) -> None:
        with self._draws.drawing():
            getattr(self._given, hook, lambda: None)()

    def _places(self, number: int) -> Iterator[int]:
        """Yields the places of batch `number` and of those that follow it in its epoch and its pass."""
        ends = [(number // each + 1) * each for each in (self._epoch, self.batches) if each is not None]
        for each in range(number, min(ends)) if ends else itertools.count(number):
            yield each if self.batches is None else self._place(*divmod(each, self.batches))

    def _place(self, number_of_pass: int, batch: int) -> int:
        is_drawn = number_of_pass < len(self._orders)
        return int(self._orders[number_of_pass][batch]) if is_drawn else batch

    def _fetched(self, place: int) -> Any:
        return self._standardize(self._given[place])


class _Ahead:
    """Gets batches by several threads, in their order."""

    def __init__(self, get: Callable[[int], Any], workers: int) -> None:
        self._get = get
        self._most = 2 * workers
        self._pool = concurrent.futures.ThreadPoolExecutor(workers, thread_name_prefix="batches")
        self._begun: collections.deque[tuple[int, Any]] = collections.deque()

    def get(self, places: Iterator[int]) -> Any:
        """Returns the batch of the first of `places`, and begins those that follow."""
        wanted = list(itertools.islice(places, self._most))
        if not self._begun or self._begun[0][0] != wanted[0]:
            self._begun.clear()
        for place in wanted[len(self._begun) :]:
            self._begun.append((place, self._pool.submit(self._get, place)))
        return self._begun.popleft()[1].result()


class Stream:
    """The batches of a generator, which gives each of them once."""

    batches: int | None = None

    def __init__(self, given: Any, standardize: Callable[[Any], Any], call: str) -> None:
        self._call = call
        self._rest = map(standardize, given)
        self._first = [_copied(batch) for batch in itertools.islice(self._rest, _LOOKED_AT)]
        if not self._first:
            raise program_error(f"{call}: the generator yields no batch")
        self.element = _element(self._first, call)
        self.size = _size(self._first[0])

    def kept(self, most: int | None) -> Kept:
        """Returns its first batches, at most `most`, in memory, so that they can be read again."""
        return Kept(list(itertools.islice(self._remaining(), most)), self.element)

    def dataset(self, first: int = 0) -> tf.data.Dataset:
        """Returns the batches after the first ones, which are read and left out."""
        return tf.data.Dataset.from_generator(
            lambda: itertools.islice(self._remaining(), first, None), output_signature=self.element
        )

    def _remaining(self) -> Iterator[Any]:
        while self._first:
            yield self._first.pop(0)
        for batch in self._rest:
            _check(batch, self.element, self._call)
            yield _copied(batch)


class Kept:
    """See `numbered.Source`: batches in memory."""

    def __init__(self, kept_batches: list[Any], element: Any) -> None:
        self._kept_batches = kept_batches
        self.batches = len(kept_batches)
        self.element = element

    def read(self, number: int) -> Any:
        """See `numbered.Source`."""
        return self._kept_batches[number % self.batches]


def is_sequence(given: Any) -> bool:
    """Returns whether it is a PyDataset of Keras 3 or a Sequence of tf_keras."""
    return any(
        kind.__name__ in ("PyDataset", "Sequence")
        and kind.__module__.partition(".")[0] in ("keras", "tf_keras")
        for kind in type(given).__mro__
    )


def is_stream(given: Any) -> bool:
    """Returns whether it is a generator or another iterator."""
    return hasattr(given, "__next__") and hasattr(given, "__iter__")


def standardized(batch: Any, floatx: str, call: str, *, keras_3: bool) -> Any:
    """Returns a batch as Keras gives it to the model: without None, of tuples, and in Keras 2 of `floatx`."""
    if isinstance(batch, list):
        batch = tuple(batch)
    if keras_3 and not isinstance(batch, (tuple, dict)):
        batch = (batch,)
    if isinstance(batch, tuple):
        while len(batch) > 1 and batch[-1] is None:
            batch = batch[:-1]
        if len(batch) not in (1, 2, 3):
            raise program_error(
                f"{call}: a batch is a tuple of {len(batch)}, not (x, y) or (x, y, sample_weight)"
            )
        if not keras_3 and len(batch) == 1 and not isinstance(batch[0], tuple):
            (batch,) = batch
    batch = arrays.as_tuples(batch)

    def cast(value: Any) -> Any:
        if isinstance(value, (tf.Tensor, tf.RaggedTensor, tf.SparseTensor)):
            return value
        value = arrays.host_array(value, floatx, keras_3=keras_3)
        return value.astype(floatx) if not keras_3 and value.dtype.kind == "f" else value

    return tf.nest.map_structure(cast, batch)


def _length(given: Any) -> int | None:
    if hasattr(given, "num_batches"):
        count = given.num_batches
        return None if count is None else int(count)
    return len(given)


def _size(batch: Any) -> int:
    """Returns the number of examples."""
    return int(tf.nest.flatten(batch)[0].shape[0])


def _element(batches: list[Any], call: str) -> Any:
    """Returns the element_spec that `batches` have in common."""

    def spec(*values: Any) -> Any:
        specs = [_spec(each) for each in values]
        if not all(each.shape.rank for each in specs):
            raise program_error(f"{call}: a batch has a number in the place of an array of examples")
        common = specs[0].most_specific_common_supertype(specs[1:])
        if common is None or common.shape.rank is None:
            raise program_error(f"{call}: batches of different types, {specs[0]} and {specs[1]}")
        shape = [None, *common.shape[1:]]
        if isinstance(common, tf.RaggedTensorSpec):
            return tf.RaggedTensorSpec(shape, common.dtype, common.ragged_rank, common.row_splits_dtype)
        return type(common)(shape, common.dtype)

    try:
        return tf.nest.map_structure(spec, *batches)
    except (TypeError, ValueError) as error:
        raise program_error(f"{call}: the first two batches have different structures ({error})") from error


def _spec(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return tf.TensorSpec(value.shape, tf.string if value.dtype.kind in "OUS" else value.dtype)
    return tf.type_spec_from_value(value)


def _copied(batch: Any) -> Any:
    """Returns `batch` in memory of its own. TensorFlow does not copy an array that happens to be aligned,
    and Python code may have its next batch, or another order, in the same memory.
    """
    return tf.nest.map_structure(
        lambda value: value.copy() if isinstance(value, np.ndarray) else value, batch
    )


def _check(batch: Any, element: Any, call: str) -> None:
    """Raises Failure where `batch` does not fit to `element`."""
    tf.nest.assert_same_structure(batch, element, expand_composites=True)
    for value, spec in zip(tf.nest.flatten(batch), tf.nest.flatten(element)):
        if not spec.shape.is_compatible_with(value.shape):
            raise program_error(
                f"{call}: a batch of {tuple(value.shape)}, where the first ones were {tuple(spec.shape)}: "
                "where batches have different shapes, the first two must differ there, too"
            )


class _Draws:
    """Random numbers of Python and numpy that nothing else draws. After a seed of the program's they are
    those that follow it: where `goes_on`, those that the process would draw next.
    """

    def __init__(self, seed: int, *, goes_on: bool) -> None:
        global_seed = seeds.global_seed()
        is_seeded = global_seed not in (None, seeds.UNSET)
        self._is_process_s = is_seeded and goes_on
        if self._is_process_s:
            self._states = _states()
        elif is_seeded:
            with _drawing, _restored():
                random.seed(global_seed)
                np.random.seed(global_seed)
                self._states = _states()
        else:
            with _seeded(seed, 0, 1):
                self._states = _states()

    @contextlib.contextmanager
    def drawing(self) -> Iterator[None]:
        """Has the process draw them in the block."""
        with _drawing, _restored():
            _set(self._states)
            yield
            self._states = _states()

    def leave(self) -> None:
        """Has the process go on from them, where they went on from its own."""
        if self._is_process_s:
            with _drawing:
                _set(self._states)


@contextlib.contextmanager
def _seeded(*key: int) -> Iterator[None]:
    """Has Python's and numpy's random numbers depend on `key` in the block."""
    with _drawing, _restored():
        np.random.seed([each % 2**32 for each in key])
        random.seed(int(np.random.randint(2**31)))
        yield


@contextlib.contextmanager
def _restored() -> Iterator[None]:
    before = _states()
    try:
        yield
    finally:
        _set(before)


def _states() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state()


def _set(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])
