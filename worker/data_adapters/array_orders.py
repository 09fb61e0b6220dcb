"""The order of the examples in each pass: a function of a seed and the pass, and so the same on every task
and in every attempt.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from worker.tf_compat import seeds


def drawn_by_keras(examples: int, *, keras_3: bool) -> tf.data.Dataset | None:
    """Returns the order of so many examples in each pass, int64[examples], that Keras' fit draws after the
    program's own `set_random_seed`; None where it has set no seed. Keras 3 draws the same one for each pass.

    TensorFlow draws by the number of the operation in its function, which must be Keras': data_adapter.py,
    TensorLikeDataAdapter, in Keras 2, array_data_adapter.py in Keras 3.
    """
    if seeds.global_seed() in (None, seeds.UNSET):
        return None

    def permutation(_: Any) -> Any:
        return tf.random.shuffle(tf.range(examples, dtype=tf.int64))

    if not keras_3:
        return tf.data.Dataset.range(1).repeat().map(permutation)
    (only,) = tf.data.Dataset.range(1).map(permutation)
    return tf.data.Dataset.from_tensors(only).repeat()


class Order:
    """`shuffle` is fit's: True for another order of all examples in each pass, "batch" for another one within
    each batch (and, in Keras 2, of the batches), False for none.
    """

    def __init__(self, shuffle: bool | str, seed: int, *, keras_3: bool) -> None:
        self._seed, self._keras_3 = seed, keras_3
        self.is_shuffled = bool(shuffle)
        self._whole = self.is_shuffled and shuffle != "batch"
        self._within = shuffle == "batch"
        self._of_batches = self._within and not keras_3
        self._of_pass = functools.lru_cache(1)(self._of_pass_uncached)

    def drawn(self, examples: int) -> tf.data.Dataset | None:
        """See `drawn_by_keras`; None too where not all examples are shuffled."""
        return drawn_by_keras(examples, keras_3=self._keras_3) if self._whole else None

    def rows(self, number_of_pass: int, batch: int, size: int, examples: int) -> Any:
        """Returns which examples are in a batch of a pass: a slice, or an array of their numbers."""
        if self._whole:
            return self._of_pass(number_of_pass, examples)[batch * size : (batch + 1) * size]
        if self._of_batches:
            batch = int(self._of_pass(number_of_pass, -(-examples // size))[batch])
        begin, end = batch * size, min((batch + 1) * size, examples)
        if self._within:
            return begin + self._random(number_of_pass, batch + 1).permutation(end - begin)
        return slice(begin, end)

    def _of_pass_uncached(self, number_of_pass: int, count: int) -> Any:
        kind = np.int32 if count < 2**31 else np.int64
        return self._random(number_of_pass, 0).permutation(np.arange(count, dtype=kind))

    def _random(self, *key: int) -> np.random.RandomState:
        # RandomState and not Generator: numpy promises its stream for all versions.
        return np.random.RandomState([self._seed % 2**32, *key])
