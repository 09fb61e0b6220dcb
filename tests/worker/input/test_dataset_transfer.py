"""Datasets that are read elsewhere, or a second time."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from worker.input.dataset_transfer import copied


def test_a_copy_uses_up_no_order() -> None:
    names = tf.data.Dataset.range(3).shuffle(3, seed=4)
    numbers = names.interleave(lambda name: tf.data.Dataset.range(4 * name, 4 * name + 4))
    dataset = numbers.shuffle(12, seed=5).batch(5)
    copy, again = copied(dataset), copied(dataset)
    first, second = _read(copy), _read(copy)
    assert first != second
    assert [_read(dataset), _read(dataset)] == [first, second]
    assert _read(again) == first


def test_a_copy_has_one_order_where_the_dataset_reads_one_shuffle_twice() -> None:
    shuffled = tf.data.Dataset.range(12).shuffle(12, seed=4)
    dataset = shuffled.take(5).concatenate(shuffled.skip(5)).batch(5)
    copy = copied(dataset)
    assert [_read(copy) for _ in range(3)] == [_read(dataset) for _ in range(3)]


def test_a_copy_calls_python() -> None:
    doubled = tf.data.Dataset.range(3).map(lambda n: tf.py_function(lambda x: 2 * x, [n], tf.int64))
    assert [int(number) for number in copied(doubled)] == [0, 2, 4]


def _read(dataset: Any) -> list[int]:
    return [int(number) for batch in dataset for number in batch]
