"""A script's calls use up as many orders of a shuffled dataset as Keras' own calls do in one process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.worker.input.test_continuation import loop_of
from worker.checkpoints.position import Position
from worker.failures import Failure
from worker.input import continuation, due_orders, fit_iterations, used_shuffle_orders
from worker.input.dataset_transfer import carried
from worker.input.fit_iterations import Scored
from worker.tf_compat import graphs

EXAMPLES, BATCH, BATCHES = 12, 4, 3


def made(kind: str) -> Any:
    shuffled = tf.data.Dataset.range(EXAMPLES).shuffle(EXAMPLES, seed=5)
    if kind == "of no known size":
        shuffled = shuffled.filter(lambda each: each >= 0)
    pairs = shuffled.map(lambda each: (tf.fill((1,), tf.cast(each, tf.float32)), tf.cast(each, tf.float32)))
    return pairs.batch(BATCH)


def order(dataset: Any) -> list[float]:
    return [float(label) for _, labels in dataset.take(BATCHES) for label in labels.numpy()]


def use(dataset: Any, count: int) -> None:
    shuffles = graphs.shuffles_of(dataset)
    used_shuffle_orders.use(Counter({id(each): count for each in shuffles}), dataset)


def used_by(call: Callable[[Any, Any], Any], library: Any, kind: str) -> int:
    """Returns how many orders `call` of a model uses up: the number of the one that is next."""
    dataset, fresh = made(kind), made(kind)
    model = library.Sequential([library.layers.Dense(1)])
    model.compile(library.optimizers.SGD(1e-4), "mse")
    call(model, dataset)
    following = order(dataset)
    return next(number for number in range(20) if order(fresh) == following)


class _Stop(keras.callbacks.Callback):  # type: ignore[misc]
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.stop_training = epoch == 1


class _Stop2(tf_keras.callbacks.Callback):  # type: ignore[misc]
    on_epoch_end = _Stop.on_epoch_end


@pytest.mark.filterwarnings("ignore:.*ran out of data")
@pytest.mark.parametrize("library", [keras, tf_keras], ids=["Keras 3", "Keras 2"])
@pytest.mark.parametrize("kind", ["of known size", "of no known size"])
def test_they_are_counted_as_keras_begins_them(kind: str, library: Any) -> None:
    keras_3, stop = library is keras, [_Stop() if library is keras else _Stop2()]
    quiet = {"verbose": 0}
    once = {"verbose": 0, "shuffle": False}
    fits: dict[tuple[int, int | None], Callable[[Any, Any], Any]] = {
        (3, None): lambda model, data: model.fit(data, epochs=3, **once),
        (2, None): lambda model, data: model.fit(data, epochs=9, callbacks=stop, **once),
        (2, 1): lambda model, data: model.fit(data, epochs=2, steps_per_epoch=1, **once),
    }
    if kind == "of known size":
        fits[2, BATCHES] = lambda model, data: model.fit(data, epochs=2, steps_per_epoch=BATCHES, **once)
    for (epochs, steps), fit in fits.items():
        expected = used_by(fit, library, kind)
        used = fit_iterations.of_fit(made(kind), steps, epochs, keras_3=keras_3).end
        assert list(used.values()) == [expected], (epochs, steps)
    scores: dict[tuple[str, int | None], Callable[[Any, Any], Any]] = {
        ("evaluate", None): lambda model, data: model.evaluate(data, **quiet),
        ("evaluate", 2): lambda model, data: model.evaluate(data, steps=2, **quiet),
        ("evaluate", 3): lambda model, data: model.evaluate(data, steps=3, **quiet),
        ("predict", None): lambda model, data: model.predict(data, **quiet),
    }
    for (name, steps), score in scores.items():
        expected = used_by(score, library, kind)
        dataset, used = made(kind), Counter[int]()
        scored = Scored(dataset, steps, int(dataset.cardinality()))
        fit_iterations.of_scoring(scored, used, keras_3=keras_3)
        assert list(used.values()) == [expected], (name, steps)


@pytest.mark.parametrize("kind", ["of known size", "of no known size"])
def test_a_dataset_that_a_call_has_read_goes_on_with_the_order_that_is_due(kind: str) -> None:
    orders = [order(each) for each in [made(kind)] for _ in range(6)]
    dataset, strategy = made(kind), tf.distribute.get_strategy()
    assert continuation.due(dataset, strategy) is dataset
    for _ in range(5):  # what the runtime has read ahead
        iter(dataset)
    use(dataset, 2)
    assert order(continuation.due(dataset, strategy)) == orders[2]
    use(dataset.take(2), 3)  # of the same shuffle
    later = continuation.due(dataset, strategy)
    assert order(later) == orders[3]
    assert np.shape(orders) == (6, EXAMPLES)


def test_what_a_programs_methods_have_read_is_used_up_for_a_worker() -> None:
    """As by `adapt`; the program's data are then read as they are in one process."""
    orders = [order(each) for each in [made("of known size")] for _ in range(3)]
    dataset = made("of known size")
    loop = loop_of(lambda: dataset, BATCHES)
    loop.program.model = lambda: next(iter(dataset))
    loop.program.has = lambda _: False
    loop.program.is_keras_3 = True
    with used_shuffle_orders.counted():
        loop.program.model()
    sent = continuation.of_worker(loop, dataset, BATCHES, Position(0, 0))
    assert order(carried(sent, "mine:Program", "train_dataset")()) == orders[1]
    assert order(continuation.continued(loop, dataset, BATCHES, Position(0, 0))) == orders[1]


def test_data_without_a_known_pass_begin_with_the_order_that_is_due_and_without_a_notice() -> None:
    def endless() -> Any:
        return made("of known size").repeat().map(lambda *pair: pair)

    orders = [order(each) for each in [made("of known size")] for _ in range(4)]
    for goes_on in (continuation.continued, continuation.of_worker):
        loop = loop_of(endless, BATCHES)
        dataset = loop.program.train_dataset(BATCH)
        use(dataset, 2)
        assert order(goes_on(loop, dataset, BATCHES, Position(0, 0))) == orders[2]
        assert loop.hooks.reporter.notices == []


def test_what_cannot_be_copied_is_read_as_it_is_and_refused_where_tasks_share_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So it is with 2 GB of arrays in the dataset."""

    def fails(_: Any) -> None:
        raise tf.errors.NotFoundError(None, None, "FetchOutputs node : not found")

    monkeypatch.setattr(due_orders, "copied", fails)
    dataset = made("of known size")
    use(dataset, 1)
    first = order(made("of known size"))
    assert order(continuation.due(dataset, tf.distribute.get_strategy())) == first
    kind = tf.distribute.MultiWorkerMirroredStrategy
    with pytest.raises(Failure, match=r"cannot be copied .*: make it anew for each use"):
        continuation.due(dataset, kind.__new__(kind))
