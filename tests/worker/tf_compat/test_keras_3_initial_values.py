"""The initial values that each parameter server makes for its rows."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from worker.tf_compat import keras_3_shards


@pytest.mark.parametrize(
    "initializer",
    [
        keras.initializers.RandomUniform(-0.5, 2.0, seed=7),
        keras.initializers.RandomNormal(0.3, 2.0),
        keras.initializers.Constant(3.0),
    ],
)
def test_rows_of_an_initial_value_are_those_of_the_whole(initializer: Any) -> None:
    whole, shape = initializer((103, 7)), (103, 7)
    kind = keras_3_shards._Drawn if hasattr(initializer, "seed") else keras_3_shards._Constant
    value = kind(initializer, shape, "float32")
    for first, count in ((0, 103), (0, 10), (33, 35), (99, 4), (1, 1)):
        np.testing.assert_array_equal(value((count, 7), (first, 0)), whole[first : first + count])
