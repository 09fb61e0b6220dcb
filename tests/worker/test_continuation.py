"""The data of a later generation goes on in the order of the one before."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from worker.contract import ElasticWorkers
from worker.input.continuation import alike, from_batch

EXAMPLES, BATCH, PASSES = 20, 4, 5
numbers = tf.data.Dataset.range(EXAMPLES)
LOOP: Any = SimpleNamespace(elastic=ElasticWorkers(1, 3, 2))


def files() -> Any:
    """Files in another order in each pass, and then their examples."""
    names = tf.data.Dataset.range(4).shuffle(4)
    return names.interleave(
        lambda name: tf.data.Dataset.range(name * 5, name * 5 + 5), cycle_length=2, num_parallel_calls=2
    )


def permuted() -> Any:
    """Shuffled by Python and by numpy."""
    order = np.random.permutation(EXAMPLES).tolist()
    random.shuffle(order)
    return tf.data.Dataset.from_tensor_slices(order)


PIPELINES: dict[str, Callable[[], Any]] = {
    "not shuffled": lambda: numbers,
    "shuffled": lambda: numbers.shuffle(EXAMPLES),
    "in one order": lambda: numbers.shuffle(EXAMPLES, reshuffle_each_iteration=False),
    "by two shuffles": lambda: numbers.shuffle(EXAMPLES).shuffle(5),
    "cached before": lambda: numbers.cache().shuffle(EXAMPLES),
    "cached after": lambda: numbers.shuffle(EXAMPLES).cache(),
    "in the background": lambda: (
        numbers.shuffle(EXAMPLES).map(lambda number: number, num_parallel_calls=tf.data.AUTOTUNE).prefetch(2)
    ),
    "files": lambda: files().shuffle(10).apply(tf.data.experimental.assert_cardinality(EXAMPLES)),
    "files of no known number": lambda: files().shuffle(10),
    "without an end": lambda: numbers.shuffle(EXAMPLES).repeat(),
    "permuted": permuted,
}


def made(name: str) -> Any:
    with alike(LOOP):
        return PIPELINES[name]().batch(BATCH)


def batches(dataset: Any, count: int) -> list[list[int]]:
    return [batch.numpy().tolist() for batch in dataset.take(count)]


@pytest.mark.parametrize("name", PIPELINES)
def test_the_order_is_that_of_one_generation(name: str) -> None:
    whole = batches(made(name).repeat(), PASSES * EXAMPLES // BATCH)
    for done in (0, 2, 5, 7, 17):
        np.random.seed()
        tf.random.uniform([])
        assert batches(from_batch(made(name), done), len(whole) - done) == whole[done:], done


def test_only_the_dataset_is_made_alike() -> None:
    assert len({float(value) for value in _drawn()} | {float(value) for value in _drawn()}) == 6


def _drawn() -> list[Any]:
    with alike(LOOP):
        numbers.shuffle(EXAMPLES)
    return [random.random(), np.random.random(), tf.random.uniform([])]
