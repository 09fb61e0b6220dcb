"""A PyDataset or Sequence has the order that Keras' own fit gives it in one process, also in a later fit."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.worker.data_adapters.recording_model import recording_model
from worker.data_adapters import fit_data

EXAMPLES, BATCH, EPOCHS = 11, 4, 3
BATCHES = 3
FITS = 2
LIBRARIES = pytest.mark.parametrize("library", [keras, tf_keras], ids=["Keras 3", "Keras 2"])
KINDS = pytest.mark.parametrize("shuffles_itself", [True, False])


@pytest.fixture(autouse=True)
def _no_seed() -> Iterator[None]:
    yield
    tf.random.set_seed(None)


def numbers(library: Any, *, shuffles_itself: bool) -> Any:
    """Returns a PyDataset of numbers, which may change their order at the end of an epoch."""
    kind = library.utils.PyDataset if library is keras else library.utils.Sequence

    class Numbers(kind):  # type: ignore[misc,valid-type]
        def __init__(self) -> None:
            if library is keras:
                super().__init__()
            self.order = np.arange(EXAMPLES, dtype="float32")

        def __len__(self) -> int:
            return BATCHES

        def __getitem__(self, index: int) -> Any:
            rows = self.order[index * BATCH : (index + 1) * BATCH, None]
            return rows, rows

        def on_epoch_end(self) -> None:
            if shuffles_itself:
                np.random.shuffle(self.order)

    return Numbers()


def of_keras(library: Any, data: Any, *, steps: int | None) -> list[list[int]]:
    """Returns the examples of each batch that two calls of `fit` of one process read."""
    model, seen = recording_model(library)
    for _ in range(FITS):
        model.fit(data, epochs=EPOCHS, steps_per_epoch=steps, shuffle=True, verbose=0)
    return seen


def of_runtime(library: Any, data: Any, *, steps: int | None, done: int = 0) -> list[list[int]]:
    """Returns those of the runtime, without the first `done` batches of each call."""
    orders, epoch = [], steps or BATCHES
    for number in range(FITS):
        given = fit_data.training_data(
            data, keras_3=library is keras, steps_per_epoch=steps, epochs=EPOCHS, seed=number + 1
        )
        batches = given.from_batch(done).prefetch(4).take(EPOCHS * epoch - done)
        orders += [x.numpy().ravel().tolist() for x, _ in batches]
        given.use_up(EPOCHS)
    return orders


@LIBRARIES
@KINDS
def test_the_order_is_that_of_fit(library: Any, shuffles_itself: bool) -> None:
    library.utils.set_random_seed(7)
    data = numbers(library, shuffles_itself=shuffles_itself)
    expected = of_keras(library, data, steps=None)
    after = random.random(), np.random.rand()
    per_fit = EPOCHS * BATCHES
    assert len(expected) == FITS * per_fit
    for done in (0, 1, 3, 5):
        library.utils.set_random_seed(7)
        data = numbers(library, shuffles_itself=shuffles_itself)
        rest = of_runtime(library, data, steps=None, done=done)
        assert rest == expected[done:per_fit] + expected[per_fit + done :]
        assert (random.random(), np.random.rand()) == after, "what the script draws next"


@LIBRARIES
def test_an_epoch_may_be_shorter_than_a_pass(library: Any) -> None:
    """Keras begins a new pass with each epoch; here one pass follows the other, as for all data."""
    library.utils.set_random_seed(7)
    orders = of_runtime(library, numbers(library, shuffles_itself=False), steps=2)
    of_a_fit = orders[: EPOCHS * 2]
    for begin in (0, BATCHES):
        one_pass = itertools.chain.from_iterable(of_a_fit[begin : begin + BATCHES])
        assert sorted(one_pass) == list(range(EXAMPLES))
    library.utils.set_random_seed(7)
    again = of_runtime(library, numbers(library, shuffles_itself=False), steps=2, done=3)
    assert again[:3] == of_a_fit[3:]


def test_without_a_seed_each_pass_has_an_order_of_its_own() -> None:
    first = of_runtime(keras, numbers(keras, shuffles_itself=False), steps=None)
    random.seed()
    again = of_runtime(keras, numbers(keras, shuffles_itself=False), steps=None)
    assert first == again, "the same on every task"
    assert first[:BATCHES] != first[BATCHES : 2 * BATCHES]
