"""The passes through what fit takes: each has all examples once, in its order, and begins at any batch."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import tensorflow as tf

from tests.worker.input.test_continuation import batches, loop_of
from worker.checkpoints.position import Position
from worker.contract.run_config import DataService
from worker.data_adapters import fit_data
from worker.failures import Failure
from worker.input.continuation import continued
from worker.input.data_service_reader import served
from worker.input.datasets import training_dataset

EXAMPLES, BATCH, STEPS, EPOCHS = 22, 4, 4, 9
"""An epoch of 4 steps cuts a pass of 6 batches, of which the last has 2 examples."""
keras: Any = importlib.import_module("keras")


class Numbers(keras.utils.PyDataset):  # type: ignore[misc]
    """Notes what is asked of it. At the end of an epoch it is shuffled, unseeded."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.order = np.arange(EXAMPLES)
        self.asked: list[Any] = []

    def __len__(self) -> int:
        return -(-EXAMPLES // BATCH)

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        rows = self.order[index * BATCH : (index + 1) * BATCH]
        return rows, rows + np.random.randint(100, size=len(rows))

    def on_epoch_begin(self) -> None:
        self.asked.append("begin")

    def on_epoch_end(self) -> None:
        self.asked.append("end")
        np.random.shuffle(self.order)


def data(given: Any, **options: Any) -> Any:
    return fit_data.training_data(given, batch_size=BATCH, keras_3=True, **options)


GIVEN: dict[str, Callable[[], Any]] = {
    "shuffled": lambda: data(np.arange(EXAMPLES)),
    "not shuffled": lambda: data(np.arange(EXAMPLES), shuffle=False),
    "within batches": lambda: data(np.arange(EXAMPLES), shuffle="batch"),
    "of Keras 2, by batches": lambda: fit_data.training_data(
        np.arange(EXAMPLES), batch_size=BATCH, shuffle="batch", keras_3=False
    ),
    "a PyDataset": lambda: data(Numbers(), steps_per_epoch=STEPS),
    "a PyDataset, in its order": lambda: data(Numbers(), shuffle=False, steps_per_epoch=STEPS),
    "a generator": lambda: data((np.arange(number, number + BATCH),) for number in range(EPOCHS * STEPS)),
}


@pytest.mark.parametrize("name", GIVEN)
def test_a_training_goes_on_at_any_batch(name: str) -> None:
    remaining = {}
    for done in (0, 1, 3, 4, 5, 8, 17):
        np.random.seed()  # as in another process
        loop = loop_of(lambda: GIVEN[name]().dataset(), STEPS)
        dataset, steps = training_dataset(loop)
        later = continued(loop, dataset, steps, Position(*divmod(done, steps)))
        remaining[done] = batches(later, EPOCHS * STEPS - done)
        assert later.element_spec == dataset.element_spec
        assert int(later.cardinality()) == (
            tf.data.UNKNOWN_CARDINALITY if name == "a generator" else tf.data.INFINITE_CARDINALITY
        )
    assert all(remaining[done] == remaining[0][done:] for done in remaining)


@pytest.mark.parametrize("name", ["shuffled", "within batches", "of Keras 2, by batches"])
def test_each_pass_has_all_examples_in_an_order_of_its_own(name: str) -> None:
    read = batches(GIVEN[name]().from_batch(0), 18)
    passes = [list(itertools.chain(*read[first : first + 6])) for first in (0, 6, 12)]
    assert [sorted(each) for each in passes] == [list(range(EXAMPLES))] * 3
    assert len({tuple(each) for each in passes}) == 3
    blocks = [sorted(range(EXAMPLES))[first : first + BATCH] for first in range(0, EXAMPLES, BATCH)]
    kept = [sorted(batch) for batch in read[:6]]
    assert (kept == blocks) == (name == "within batches")
    assert (sorted(kept) == blocks) == (name != "shuffled")


def test_another_seed_gives_another_order_and_the_same_one_the_same() -> None:
    def order(seed: int | None) -> list[Any]:
        return batches(data(np.arange(EXAMPLES), seed=seed).from_batch(0), 6)

    assert order(None) == order(None) != order(1)


def test_batches_that_are_done_are_not_asked_for_again() -> None:
    given = Numbers()
    later = data(given, shuffle=False, steps_per_epoch=STEPS)
    given.asked.clear()
    batches(later.from_batch(2 * STEPS + 1), STEPS)
    begun = ["end", "begin", "end", "begin", "end", "begin"]  # Keras 3 begins with an end
    assert given.asked == [*begun, 3, 4, 5, "end", "begin", 0]
    # Batches 9 to 11 of passes of 6, and then 12, in epochs of 4.


def test_threads_read_ahead_in_the_same_order() -> None:
    class Threaded(Numbers):
        threads: ClassVar[set[str]] = set()

        def __getitem__(self, index: int) -> Any:
            self.threads.add(threading.current_thread().name)
            rows = self.order[index * BATCH : (index + 1) * BATCH]
            return (rows,)

    read = [batches(data(Threaded(workers=count)).from_batch(7), 20) for count in (1, 3)]
    assert read[0] == read[1]
    assert any(name.startswith("batches_") for name in Threaded.threads)


def test_an_evaluation_reads_the_same_batches_again() -> None:
    endless = (np.arange(number, number + 2) for number in range(10**9))
    kept = fit_data.evaluation_data(endless, keras_3=False, steps=3).dataset()
    assert int(kept.cardinality()) == 3
    assert batches(kept.repeat(), 6) == [[0, 1], [1, 2], [2, 3]] * 2
    first = fit_data.evaluation_data(np.arange(EXAMPLES), keras_3=True, batch_size=BATCH, steps=2)
    assert batches(first.dataset().repeat(), 3) == [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3]]
    assert (first.batches, first.examples) == (2, 8)


def test_arrays_are_not_copied() -> None:
    array = np.zeros((EXAMPLES, 2), np.float64)
    dataset = data(array, shuffle=False).from_batch(0)
    array += 7.0
    assert batches(dataset, 1) == [[[7.0, 7.0]] * BATCH]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((object(),), "fit: cannot read a object"),
        ((np.zeros([]),), "without a dimension"),
        ((np.array([1, "a"], dtype=object),), "an array of Python objects (dtype object)"),
        ((np.zeros((0, 3)), np.zeros(0)), "the arrays have no example"),
        (({"a": np.zeros(4)}, np.zeros(5)), "different numbers of examples (x: 4; y: 5)"),
        ((iter([]),), "the generator yields no batch"),
        (((each for each in (np.zeros(2), np.zeros((2, 2)))),), "batches of different types"),
        (((each for each in (1.0, 2.0)),), "a number in the place of an array"),
        ((iter([(np.zeros(1),) * 4]),), "a batch is a tuple of 4"),
    ],
)
def test_what_cannot_be_is_one_message(given: Any, message: str) -> None:
    with pytest.raises(Failure) as raised:
        fit_data.training_data(*given, keras_3=True)
    assert message in raised.value.message


def test_a_later_batch_of_another_shape_is_one_message() -> None:
    shapes = iter([(np.zeros((2, 3)),), (np.zeros((1, 3)),), (np.zeros((2, 4)),)])
    with pytest.raises(
        tf.errors.OpError, match=r"a batch of \(2, 4\), where the first ones were \(None, 3\)"
    ):
        list(fit_data.training_data(shapes, keras_3=True).from_batch(0))


def test_what_the_file_asks_for_and_cannot_be_is_one_message() -> None:
    loop = loop_of(lambda: data(np.arange(EXAMPLES)).dataset(), STEPS)
    dataset, steps = training_dataset(loop)
    unsharded = dataclasses.replace(loop, strategy_options={"autoShard": "OFF"})
    with pytest.raises(Failure, match="autoShard: OFF is for"):
        continued(unsharded, dataset, steps, Position())
    with pytest.raises(Failure, match="cannot be sent to the data workers"):
        served(loop, DataService("localhost:1", (), "localhost:2", "DYNAMIC", True), dataset)
    loop = loop_of(GIVEN["a generator"], None)
    loop.program.train_dataset = lambda size: GIVEN["a generator"]().dataset()
    with pytest.raises(Failure, match="stepsPerEpoch: needed"):
        training_dataset(loop)
