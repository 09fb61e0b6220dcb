"""Reads the graphs of datasets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from worker.tf_compat import graphs

DRAWN: dict[str, Callable[[Any], Any]] = {
    "batched": lambda shuffled: shuffled.batch(4).prefetch(2),
    "repeated": lambda shuffled: shuffled.repeat(3).batch(4),
    "repeated behind another": lambda shuffled: shuffled.take(8).repeat(2).shuffle(4, seed=2),
    "one after the other": lambda shuffled: shuffled.take(3).concatenate(shuffled.skip(3)),
    "side by side": lambda shuffled: tf.data.Dataset.zip(shuffled.take(3), shuffled.skip(3)),
    "behind another": lambda shuffled: shuffled.take(8).shuffle(4, seed=2),
    "interleaved": lambda shuffled: shuffled.interleave(tf.data.Dataset.range, num_parallel_calls=2),
}


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("reads", [False, True])
def test_the_orders_that_an_iteration_draws(name: str, reads: bool) -> None:
    def values(dataset: Any) -> list[int]:
        return [int(number) for number in dataset]

    shuffled, again = (tf.data.Dataset.range(12).shuffle(12, seed=5) for _ in range(2))
    dataset = DRAWN[name](shuffled)
    assert shuffled in graphs.shuffles_of(dataset)
    iterator = iter(dataset)
    if reads:
        list(iterator)
    following = values(shuffled)
    drawn = next(number for number in range(9) if values(again) == following)
    assert graphs.drawn(dataset, reads=reads)[id(shuffled)] == drawn
