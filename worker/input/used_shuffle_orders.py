"""How many orders of a shuffled dataset a script or a program has used up, as in one process.

Each iteration of a shuffled dataset has its next order. What the runtime begins for a call of the script is
another number, and depends on how far it reads ahead. So from the second use on the data are read from a
copy, which begins with the order that is due: that of one process, and the same in tasks that share batches.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from worker.tf_compat import graphs
from worker.tf_compat.replaced_methods import replace, replaced


@dataclass
class _Orders:
    """Of `shuffle`, which is kept so that its identity is. `is_next`: the dataset itself has the order that
    is due.
    """

    shuffle: Any
    count: int = 0
    is_next: bool = True


_orders: dict[int, _Orders] = {}


@dataclass
class _Kept:
    """Of `cache`, which is kept so that its identity is. Before its first pass so many orders of each shuffle
    were used up, by the shuffle's id.
    """

    cache: Any
    used: Counter[int]


_kept: dict[int, _Kept] = {}


def count(counts: Callable[[], bool], due: Callable[[Any], Any]) -> None:
    """Has the iterations that begin while `counts()` counted from now on. They read `due(dataset)`."""
    replace(tf.data.Dataset, __iter__=_counting(counts, due))


def counted() -> AbstractContextManager[None]:
    """Has the iterations that begin in the block counted: those of a program's methods, as of `adapt`."""
    return replaced(tf.data.Dataset, __iter__=_counting(lambda: True, lambda dataset: dataset))


def _counting(counts: Callable[[], bool], due: Callable[[Any], Any]) -> Callable[[Any], Any]:
    original = tf.data.Dataset.__iter__

    @functools.wraps(original)
    def counted(dataset: Any) -> Any:
        if not counts() or not graphs.shuffles(dataset):
            return original(dataset)
        every = _of(dataset)
        iterator = original(due(dataset))
        drawn = graphs.drawn(dataset, reads=True)
        for shuffle, orders in every.items():
            orders.count += drawn[shuffle]
        _fill(dataset, is_read=True)
        return iterator

    return counted


def use(drawn: Mapping[int, int], *datasets: Any) -> None:
    """A call has used up the orders of `datasets` until so many are, while the runtime has read others."""
    for dataset in datasets:
        for shuffle, orders in _of(dataset).items():
            orders.count = drawn[shuffle]
            orders.is_next = False
        _fill(dataset, is_read=False)


def of(*datasets: Any) -> Counter[int]:
    """Returns how many orders of each shuffle in `datasets` are used up, by its id."""
    every = [each for dataset in datasets for each in graphs.shuffles_of(dataset)]
    return Counter({id(each): _orders[id(each)].count for each in every if id(each) in _orders})


def are_next(dataset: Any) -> bool:
    """Returns whether an iteration of `dataset` itself has the order that is due."""
    return all(_orders[id(each)].is_next for each in graphs.shuffles_of(dataset) if id(each) in _orders)


def before_caches(dataset: Any) -> list[tuple[Any, int]]:
    """Returns each shuffle of which a cache of `dataset` keeps an order, and how many are used up before that
    one; only where there are some.
    """
    pairs = []
    for cache in graphs.caches_of(dataset):
        shuffles = graphs.shuffles_of(graphs.source_of(cache))
        used = _kept[id(cache)].used if id(cache) in _kept else of(*shuffles)
        pairs += [(each, used[id(each)]) for each in shuffles if used[id(each)]]
    return pairs


def _fill(dataset: Any, *, is_read: bool) -> None:
    """The first pass through `dataset` begins: its caches keep the next orders, unless only a part is taken.
    Where it is not `is_read`, a copy may be.
    """
    for cache in graphs.caches_of(dataset):
        if id(cache) in _kept:
            continue
        source = graphs.source_of(cache)
        every = _of(source)
        if not every:
            continue
        if not graphs.takes_a_part(dataset):
            _kept[id(cache)] = _Kept(cache, of(source))
        drawn = graphs.drawn(source, reads=True)
        for shuffle, orders in every.items():
            orders.count += drawn[shuffle]
            orders.is_next = orders.is_next and is_read


def _of(dataset: Any) -> dict[int, _Orders]:
    return {id(each): _orders.setdefault(id(each), _Orders(each)) for each in graphs.shuffles_of(dataset)}
