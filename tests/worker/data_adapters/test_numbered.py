"""Batches that are read by number: what a program holds stays as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from worker.data_adapters import numbered
from worker.data_adapters.array_orders import Order
from worker.data_adapters.arrays import Arrays, Triple, rows_of

ALIGNED = 64
"""Bytes. TensorFlow takes such memory as it is, and other memory as a copy."""


def aligned(values: Any) -> Any:
    """Returns the array in memory that begins where TensorFlow likes it."""
    memory = np.empty(values.nbytes + ALIGNED, np.uint8)
    begin = -memory.ctypes.data % ALIGNED
    array = memory[begin : begin + values.nbytes].view(values.dtype).reshape(values.shape)
    array[:] = values
    return array


class _Stored:
    """A source that returns parts of an array that it keeps, as a PyDataset may."""

    batches = 8
    element = tf.TensorSpec([32], tf.float32)

    def __init__(self, array: Any) -> None:
        self._array = array

    def read(self, number: int) -> Any:
        return self._array[32 * number : 32 * (number + 1)]


def of_arrays(array: Any) -> Any:
    structure = rows_of(Triple(array), None, "float32", keras_3=True, call="fit()")
    return Arrays(structure, 32, Order(False, 1, keras_3=True))


@pytest.mark.parametrize("source", [of_arrays, _Stored], ids=["arrays", "stored"])
def test_what_follows_does_not_write_into_the_programs_arrays(source: Any) -> None:
    """TensorFlow computes in the memory of an input where nobody else seems to need that: so it did with the
    half of a batch that a replica has.
    """
    values = np.arange(256, dtype=np.float32)
    array = aligned(values)
    halves = numbered.dataset(source(array), 0, 8).map(lambda labels: labels[:16])
    doubled = list(halves.map(lambda labels: labels * 2.0))
    np.testing.assert_array_equal(array, values)
    np.testing.assert_array_equal(tf.stack(doubled), values.reshape(8, 32)[:, :16] * 2)
