"""Arrays are shuffled as Keras' own fit shuffles them in one process, after a seed of the program's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.worker.data_adapters.recording_model import recording_model
from worker.data_adapters import fit_data

EXAMPLES, BATCH, EPOCHS = 10, 4, 3
BATCHES = 3
numbers = np.arange(EXAMPLES, dtype="float32")[:, None]


@pytest.fixture(autouse=True)
def _no_seed() -> Iterator[None]:
    yield
    tf.random.set_seed(None)


def of_keras(library: Any) -> list[list[int]]:
    """Returns the examples of each batch that `fit` of one process reads."""
    model, seen = recording_model(library)
    model.fit(numbers, numbers, batch_size=BATCH, epochs=EPOCHS, verbose=0)
    return seen


def of_runtime(library: Any, done: int) -> list[list[int]]:
    is_3 = library is keras
    data = fit_data.training_data(numbers, numbers, keras_3=is_3, batch_size=BATCH, seed=1)
    assert data.dataset().element_spec == data.from_batch(done).element_spec
    assert len(list(data.dataset())) == BATCHES
    rest = data.from_batch(done).take(EPOCHS * BATCHES - done)
    return [x.numpy().ravel().tolist() for x, _ in rest]


@pytest.mark.parametrize("library", [keras, tf_keras], ids=["Keras 3", "Keras 2"])
def test_the_order_is_that_of_fit(library: Any) -> None:
    library.utils.set_random_seed(7)
    tf.random.uniform([3])  # what a script draws before does not matter
    expected = of_keras(library)
    for done in (0, 2, 3, 7):
        assert of_runtime(library, done) == expected[done:]
    library.utils.set_random_seed(8)
    assert of_runtime(library, 0) != expected
    assert of_runtime(library, 0) == of_keras(library)


def test_without_a_seed_each_pass_has_an_order_of_its_own() -> None:
    first = of_runtime(keras, 0)
    assert first == of_runtime(keras, 0), "the same on every task"
    assert first[:BATCHES] != first[BATCHES : 2 * BATCHES]
