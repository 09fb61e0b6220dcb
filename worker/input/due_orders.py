"""Reads a dataset so that what is shuffled in it has the orders that it has in one process.

An order is passed over by an iteration of the shuffle that is begun and not read. So each shuffle whose
orders another dataset draws, too, can be had at the one that is due.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from worker.failures import program_error, sentence
from worker.input import used_shuffle_orders
from worker.input.dataset_transfer import copied
from worker.input.fit_iterations import Drawn
from worker.tf_compat import graphs

Make = Callable[["Source"], Any]


@dataclass(frozen=True)
class Source:
    """The `dataset` that is read in the place of `original`, with its `shuffles` by the ids of the
    original's. So many orders of them are `drawn` when it is read first.
    """

    dataset: Any
    original: Any
    shuffles: dict[int, Any]
    drawn: Drawn

    @classmethod
    def of(cls, dataset: Any) -> Source:
        """Returns `dataset` itself."""
        shuffles = {id(each): each for each in graphs.shuffles_of(dataset)}
        return cls(dataset, dataset, shuffles, used_shuffle_orders.of(dataset))

    def advanced(self, to: Drawn) -> Any:
        """Returns an empty dataset, at whose end `to` orders are drawn."""
        before, drawn = self.dataset.take(0), self.drawn
        if any(to[each] != drawn[each] for each in self.shuffles) and graphs.keeps_an_order(self.original):
            # Only a whole pass fills a cache, and only the first one shuffles what precedes it.
            before = self.dataset.filter(lambda *_: False)
            drawn = drawn + graphs.drawn(self.original, reads=True)
        for shuffle, each in self.shuffles.items():
            if (count := to[shuffle] - drawn[shuffle]) > 0:
                before = before.concatenate(self._skipped(each, count))
        return before

    def passes(self, before: Sequence[Drawn], first: int, begun: Any, *, endless: bool) -> Any:
        """Returns what follows the pass `first`, which `begun` reads the rest of: `before` has what is drawn
        before each one. After the last one there is nothing more, or without a gap the next ones if
        `endless`.
        """
        each_pass = graphs.drawn(self.original, reads=True)
        pairs = list(zip(before[first:], before[first + 1 :]))
        every = {
            shuffle: [after[shuffle] - at[shuffle] - each_pass[shuffle] for at, after in pairs]
            for shuffle in self.shuffles
        }
        gaps = {shuffle: counts for shuffle, counts in every.items() if any(counts)}

        def after_gap(number: Any) -> Any:
            later = self.dataset
            for shuffle, counts in gaps.items():
                skips = tf.constant(counts, tf.int64)[number]
                later = self._skipped(self.shuffles[shuffle], skips).concatenate(later)
            return later

        if all(len(set(counts)) == 1 for counts in gaps.values()):
            # TensorFlow fuses .shuffle() and .repeat(n), which then draw fewer orders, in no function.
            later = after_gap(0).repeat(len(pairs)) if pairs else self.dataset.take(0)
        else:
            as_it_is = tf.autograph.experimental.do_not_convert(after_gap)
            later = tf.data.Dataset.range(len(pairs)).flat_map(as_it_is)
        return begun.concatenate(later.concatenate(self.dataset.repeat()) if endless else later)

    def _skipped(self, shuffle: Any, count: Any) -> Any:
        return skipped(shuffle, count).flat_map(lambda *_: self.dataset.take(0))


def skipped(shuffle: Any, count: Any) -> Any:
    """Returns an empty dataset, at whose end `count` iterations of `shuffle` are begun."""

    def one(_: Any) -> Any:
        return tf.data.Dataset.choose_from_datasets([shuffle], tf.data.Dataset.range(0))

    return tf.data.Dataset.range(count).flat_map(one)


def read(dataset: Any, strategy: Any, make: Make, *, is_alone: bool = True) -> Any:
    """Returns what `make` makes of `dataset` where it has the order that is due, and otherwise of a copy: so
    too, if it is not `is_alone`, since another dataset is read meanwhile that draws from its shuffles.

    Raises Failure where tasks would read other orders, since there can be no copy.
    """
    if is_alone and used_shuffle_orders.are_next(dataset):
        return make(Source.of(dataset))
    apart = _apart(dataset)
    try:
        copy = copied(_packed(dataset, apart) if apart else dataset)
    except (tf.errors.OpError, DecodeError) as error:
        if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            return make(Source.of(dataset))
        raise program_error(
            "a shuffled dataset that the script uses more than once is copied, so that all tasks read one "
            f"order; this one cannot be copied ({sentence(error, kind=False)}): make it anew for each use"
        ) from error
    if apart:
        return _made(copy, dataset, apart, make).with_options(dataset.options())
    shuffles = {id(each): copy for each in graphs.shuffles_of(dataset)}
    return make(Source(copy, dataset, shuffles, Counter()))


def carried(dataset: Any, make: Make) -> Any:
    """Returns what `make` makes of `dataset`, without an end, that can be sent to another task: there it
    begins with the first orders.
    """
    apart = _apart(dataset)
    made = _made(_packed(dataset, apart), dataset, apart, make)
    return made.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))


def _apart(dataset: Any) -> list[Any]:
    """Returns the shuffles of `dataset` whose orders are not passed over by beginning it."""
    hidden = [each for each, _ in used_shuffle_orders.before_caches(dataset)]
    return [*(each for each in graphs.shuffles_of(dataset) if not _is_begun(dataset, each)), *hidden]


def _packed(dataset: Any, apart: list[Any]) -> Any:
    """Returns a dataset whose one element is `dataset`, and those of its shuffles that cannot be had by
    beginning it. A graph of it mentions each by itself, and knows that they are one.
    """
    return tf.data.Dataset.from_tensors(tuple(map(tf.data.experimental.to_variant, (dataset, *apart))))


def _made(packed: Any, dataset: Any, apart: list[Any], make: Make) -> Any:
    shuffles = graphs.shuffles_of(dataset)
    used = {id(each): count for each, count in used_shuffle_orders.before_caches(dataset)}

    def unpacked(variant: Any, *variants: Any) -> Any:
        read = tf.data.experimental.from_variant(variant, dataset.element_spec)
        parts = {id(each): read for each in shuffles}
        before = []
        for each, part in zip(apart, variants):
            shuffle = tf.data.experimental.from_variant(part, each.element_spec)
            if id(each) in used:  # a cache keeps its next order
                before.append(skipped(shuffle, used[id(each)]))
            else:
                parts[id(each)] = shuffle
        due = make(Source(read, dataset, parts, Counter()))
        for each in before:
            due = each.flat_map(lambda *_: due.take(0)).concatenate(due)  # noqa: B023
        return due

    made = packed.flat_map(tf.autograph.experimental.do_not_convert(unpacked))
    setattr(made, graphs.COPIED, (dataset,))
    return made


def _is_begun(dataset: Any, shuffle: Any) -> bool:
    """Returns whether to begin `dataset` draws one order, which is of `shuffle`."""
    return graphs.drawn(dataset, reads=False) == {id(shuffle): 1}
