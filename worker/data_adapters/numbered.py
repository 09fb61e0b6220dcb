"""Batches that have a number and are read by it, as a `tf.data.Dataset` that begins at any number.

What is read stays in Python: a tensor of an array would be a second copy of it. TensorFlow's zero-copy
conversion aborts the process where an array is not aligned to 64 bytes, which numpy's are not.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import tensorflow as tf

_END = 2**62
"""More batches than any training takes."""


class Source(Protocol):
    """Reads batches. Batch `number` belongs to pass `number // batches`, or to the only one where `batches`
    is None. `element` is the `element_spec` of a batch.
    """

    element: Any

    @property
    def batches(self) -> int | None:
        """Returns the number of batches in a pass."""

    def read(self, number: int) -> Any:
        """Returns a batch with the structure of `element`, of arrays or tensors."""


def dataset(source: Source, first: int = 0, last: int | None = None, rows: Any = None) -> tf.data.Dataset:
    """Returns the batches of `source` from number `first` on, in their order, to before `last`, or without an
    end. `rows` is a dataset with more that `read` is given for each of them.
    """
    flat = tf.nest.flatten(source.element, expand_composites=True)
    types = [spec.dtype for spec in flat]

    def read(number: Any, *more: Any) -> list[Any]:
        batch = source.read(int(number), *more)
        return [_array(value) for value in tf.nest.flatten(batch, expand_composites=True)]

    def batch(*place: Any) -> Any:
        values = tf.numpy_function(read, place, types)
        values = values if isinstance(values, (list, tuple)) else [values]
        for value, spec in zip(values, flat):
            value.set_shape(spec.shape)
        return tf.nest.pack_sequence_as(source.element, values, expand_composites=True)

    places = tf.data.Dataset.range(first, _END if last is None else last)
    if rows is not None:
        places = tf.data.Dataset.zip((places, rows))
    # Without a last one it is never repeated, and this tells TensorFlow that there is no end.
    return places.map(batch) if last is not None else places.map(batch).repeat()


def _array(value: Any) -> Any:
    """Returns a copy, which nobody else has: TensorFlow takes aligned memory as it is, and writes into that
    of a tensor which it alone has.
    """
    return np.array(value.numpy() if isinstance(value, tf.Tensor) else value)
