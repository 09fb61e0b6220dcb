"""An epoch of what is shuffled has the order that Keras' own fit gives it in one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf
import tf_keras

from tests.worker.input.test_continuation import batches, loop_of
from worker.checkpoints.position import Position
from worker.input import fit_iterations
from worker.input.continuation import continued, of_worker, scored
from worker.input.dataset_transfer import carried
from worker.input.fit_iterations import Scored

EXAMPLES, BATCH, STEPS, EPOCHS = 12, 4, 3, 4
numbers = tf.data.Dataset.range(EXAMPLES)
DATA: dict[str, Callable[[], Any]] = {
    "shuffled": lambda: numbers.shuffle(EXAMPLES, seed=5).batch(BATCH),
    "repeated": lambda: numbers.shuffle(12, seed=5).take(6).shuffle(6, seed=6).repeat(2).batch(BATCH),
    "twice": lambda: numbers.shuffle(EXAMPLES, seed=5).shuffle(7, seed=6).batch(BATCH).prefetch(2),
    "cached before": lambda: numbers.cache().shuffle(EXAMPLES, seed=5).batch(BATCH),
    "of no known size": lambda: numbers.shuffle(12, seed=5).filter(lambda each: each >= 0).batch(BATCH),
    "without an end": lambda: numbers.shuffle(EXAMPLES, seed=5).batch(BATCH).repeat(),
    "in one order": lambda: numbers.shuffle(12, seed=5, reshuffle_each_iteration=False).batch(BATCH),
}


def of_keras(library: Any, dataset: Any, steps: int | None) -> list[list[int]]:
    """Returns the batches that `fit` of one process reads, in their order."""
    seen: list[list[int]] = []

    class Model(library.Model):  # type: ignore[misc]
        def train_step(self, data: Any) -> Any:
            tf.py_function(lambda batch: seen.append(batch.numpy().tolist()), [data], [])
            return {"loss": tf.constant(0.0)}

    model = Model()
    model.compile("sgd")
    model.built = True
    model.fit(dataset, epochs=EPOCHS, steps_per_epoch=steps, shuffle=False, verbose=0)
    return seen


def _begun(dataset: Any, new: Any) -> int:
    """Returns how many iterations of `dataset` were begun: the number of the next one's order."""
    following = batches(dataset, STEPS)
    return next(number for number in range(20) if batches(new, STEPS) == following)


def _begun_by_keras(library: Any, size: int) -> int:
    """Returns how many a `fit` has begun, but for the last one of Keras 3, which `script.fit` begins."""
    if library is tf_keras:
        return 1 + EPOCHS
    return 2 * EPOCHS - 1 if size >= 0 else EPOCHS


CASES: list[tuple[str, int | None]] = [(name, None) for name in DATA if name != "without an end"]
CASES += [(name, STEPS) for name in DATA if name != "of no known size"]


@pytest.mark.by_day(
    "shuffled-None-Keras 3",
    "cached before-3-Keras 3",
    "twice-None-Keras 2",
    "of no known size-None-Keras 2",
    runtime=(),
)
@pytest.mark.filterwarnings("ignore:.*ran out of data")
@pytest.mark.parametrize("library", [keras, tf_keras], ids=["Keras 3", "Keras 2"])
@pytest.mark.parametrize(("name", "steps"), CASES)
def test_the_order_is_that_of_fit(name: str, steps: int | None, library: Any) -> None:
    expected = of_keras(library, DATA[name](), steps)
    assert len(expected) == EPOCHS * STEPS
    for done in (0, 2, 3, 4, 7, 10):
        loop = loop_of(DATA[name], steps)
        loop.program.has = lambda _: False
        loop.program.is_keras_3 = library is keras
        dataset = loop.program.train_dataset(BATCH)
        position = Position(*divmod(done, STEPS))
        later = continued(loop, dataset, STEPS, position)
        if later is dataset:
            later = dataset.repeat()
        assert batches(later, len(expected) - done) == expected[done:], done
        if steps is None and name not in ("repeated", "twice", "in one order"):
            assert _begun(dataset, DATA[name]()) == _begun_by_keras(library, int(dataset.cardinality())), done
        if name == "repeated":
            continue  # a worker's functions draw one order more for each .repeat(n)
        worker_dataset = of_worker(loop, loop.program.train_dataset(BATCH), STEPS, position)
        worker_dataset = carried(worker_dataset, "mine:Program", "train_dataset")()  # as a worker gets it
        assert batches(worker_dataset, len(expected) - done) == expected[done:], done


SPLITS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "take and skip": lambda shuffled: (shuffled.take(8).batch(4), shuffled.skip(8).batch(2)),
    "behind a shuffle": lambda shuffled: (
        shuffled.take(8).shuffle(8, seed=6).batch(4),
        shuffled.skip(8).batch(2),
    ),
}


@pytest.mark.filterwarnings("ignore:.*ran out of data")
@pytest.mark.parametrize("library", [keras, tf_keras], ids=["Keras 3", "Keras 2"])
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(("steps", "scores"), [(None, None), (2, 1)])
def test_parts_of_one_shuffle_draw_from_it_in_turn(
    split: str, steps: int | None, scores: int | None, library: Any
) -> None:
    seen: dict[str, list[list[int]]] = {"train": [], "test": []}

    def kept(name: str) -> Any:
        def step(_: Any, data: Any) -> Any:
            tf.py_function(lambda batch: seen[name].append(batch.numpy().tolist()), [data], [])
            return {"loss": tf.constant(0.0)}

        return step

    model = type("Model", (library.Model,), {"train_step": kept("train"), "test_step": kept("test")})()
    model.compile("sgd")
    model.built = True
    training, evaluation = SPLITS[split](numbers.shuffle(EXAMPLES, seed=5))
    asked = {"steps_per_epoch": steps, "validation_steps": scores, "validation_freq": [1, 3, 4]}
    model.fit(training, validation_data=evaluation, epochs=EPOCHS, shuffle=False, verbose=0, **asked)
    assert len(seen["train"]) == 2 * EPOCHS
    assert len(seen["test"]) == 3 * (scores or 2)

    def read(training: Any, evaluation: Any, done: int) -> tuple[Any, Any]:
        loop = loop_of(lambda: training, steps)
        given = evaluation if scores is None else evaluation.take(scores)
        loop.program.orders = fit_iterations.of_fit(
            training,
            steps,
            EPOCHS,
            keras_3=library is keras,
            evaluation=Scored(given, scores, int(evaluation.cardinality())),
            validates=lambda epoch: epoch + 1 in (1, 3, 4),
        )
        later = continued(loop, training, 2, Position(*divmod(done, 2)))
        return later, scored(loop, given, len({0, 2, 3} & set(range(done // 2))))

    for done in (0, 1, 4, 5):
        later, passes = read(*SPLITS[split](numbers.shuffle(EXAMPLES, seed=5)), done)
        expected = seen["test"][len({0, 2, 3} & set(range(done // 2))) * (scores or 2) :]
        assert batches(passes, len(expected)) == expected, done
        assert batches(later, 2 * EPOCHS - done) == seen["train"][done:], done
