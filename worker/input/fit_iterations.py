"""Which order of a shuffle each pass through the data has in Keras' `fit`, `evaluate` and `predict`.

Each iteration of a shuffled dataset draws the next order, whether it is read or only begun. Keras 2 begins
one before the first epoch and before each evaluation, and Keras 3 one after each pass through data of known
size. Datasets that are made of one shuffled dataset, as its `take` and its `skip` are, draw from one shuffle.
Source: tf_keras 2.21 data_adapter.DataHandler.enumerate_epochs, keras 3.15
epoch_iterator.EpochIterator._enumerate_iterator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from worker.input import used_shuffle_orders
from worker.parameters import TrainingParameters
from worker.program import LoadedProgram
from worker.tf_compat import graphs

Drawn = Counter[int]
"""How many orders of each shuffle are drawn, by its id."""


@dataclass(frozen=True)
class Scored:
    """A `dataset` that evaluate or predict reads, in its first `steps` batches. A pass has `batches` of them,
    which is TensorFlow's cardinality.
    """

    dataset: Any
    steps: int | None
    batches: int

    def around(self, *, keras_3: bool) -> tuple[int, int]:
        """Returns how many iterations Keras begins before the one that it reads, and after it."""
        if keras_3:
            return 0, int(self.batches >= 0 and (self.steps is None or self.steps >= self.batches))
        return int(self.steps is None or self.steps == self.batches), 0


@dataclass(frozen=True)
class Orders:
    """What is drawn before each pass of a call: through the `training` data, None where an epoch is no pass,
    and through those of the `evaluation`; and after the call.
    """

    training: list[Drawn] | None
    evaluation: list[Drawn]
    end: Drawn
    evaluation_is_alone: bool = True
    """Whether it draws from no shuffle of the training data."""


def of_fit(
    dataset: Any,
    steps: int | None,
    epochs: int,
    *,
    keras_3: bool,
    drawn: Drawn | None = None,
    evaluation: Scored | None = None,
    validates: Callable[[int], bool] = lambda _: True,
    stopped_at: int | None = None,
) -> Orders:
    """Returns those of so many epochs of `fit` in one process, where `steps` are its steps_per_epoch and
    `drawn` orders are drawn before. It `validates` after an epoch, from 0, on `evaluation`. The last epoch
    was stopped in its middle after the steps `stopped_at`.
    """
    now = Counter(drawn or {})
    shuffled = _shuffled(dataset)
    of_evaluation = set() if evaluation is None else _shuffled(evaluation.dataset)
    if not shuffled | of_evaluation:
        return Orders(None, [], now)
    trained = _of_passes if _is_pass(dataset, steps) else _of_steps
    training: list[Drawn] = []
    scored: list[Drawn] = []
    for epoch, passes in enumerate(
        trained(dataset, steps, epochs, now, keras_3=keras_3, stopped_at=stopped_at)
    ):
        training.append(passes)
        if evaluation is not None and validates(epoch):
            scored.append(of_scoring(evaluation, now, keras_3=keras_3))
    by_pass = training if shuffled and trained is _of_passes else None
    return Orders(by_pass, scored, now, shuffled.isdisjoint(of_evaluation))


def of_scoring(scored: Scored, now: Drawn, *, keras_3: bool) -> Drawn:
    """Returns what is drawn before the pass of one evaluation, and adds to `now` what it draws."""
    before, after = scored.around(keras_3=keras_3)
    begun = graphs.drawn(scored.dataset, reads=False)
    _add(now, begun, before)
    at = Counter(now)
    _add(now, graphs.drawn(scored.dataset, reads=True))
    _add(now, begun, after)
    return at


def of_program(program: LoadedProgram, parameters: TrainingParameters, dataset: Any) -> list[Drawn] | None:
    """Returns what is drawn before each pass of the `fit` that would train the program's compiled model in
    one process. None for steps of the program's own, and where an epoch is no pass.
    """
    orders: Orders | None = program.orders
    if orders is not None:
        return orders.training
    if program.has("loss") or program.has("train_step"):
        return None
    epochs = parameters.epochs - parameters.initial_epoch
    drawn = used_shuffle_orders.of(dataset)
    steps = parameters.steps_per_epoch
    return of_fit(dataset, steps, epochs, keras_3=program.is_keras_3, drawn=drawn).training


def _shuffled(dataset: Any) -> set[int]:
    return set(map(id, graphs.shuffles_of(dataset)))


def _is_pass(dataset: Any, steps: int | None) -> bool:
    size = int(dataset.cardinality())
    return size != tf.data.INFINITE_CARDINALITY and steps in (None, size)


def _of_passes(
    dataset: Any, steps: int | None, epochs: int, now: Drawn, *, keras_3: bool, stopped_at: int | None
) -> Iterator[Drawn]:
    """Yields what is drawn before each pass, when `now` has what the pass draws."""
    begun, read = (graphs.drawn(dataset, reads=reads) for reads in (False, True))
    begins_more = keras_3 and int(dataset.cardinality()) >= 0
    waits: Drawn | None = None
    if not keras_3:
        _add(now, begun)
    for epoch in range(epochs):
        at = Counter(now)
        if waits is not None:
            at.update({shuffle: waits[shuffle] - now[shuffle] for shuffle in begun})
        _add(now, read if waits is None else read - begun)
        if begins_more and (stopped_at is None or epoch + 1 < epochs):
            waits = None if steps is None else Counter(now)  # by which steps_per_epoch goes on
            _add(now, begun)
        yield at


def _of_steps(
    dataset: Any, steps: int | None, epochs: int, now: Drawn, *, keras_3: bool, stopped_at: int | None
) -> Iterator[Drawn]:
    """Yields `now`, to which is added what each epoch draws that goes on where the one before has ended."""
    repeated, size = graphs.repeated(dataset), int(dataset.cardinality())
    source, packed = repeated if repeated is not None else (dataset, 1)
    each, elements, begun = graphs.drawn(source, reads=True), int(source.cardinality()), 0
    for epoch in range(epochs):
        is_stopped = stopped_at is not None and epoch + 1 == epochs
        taken = (epoch + 1) * (steps or 0)
        if is_stopped:  # without .repeat() the next iteration begins at the end of an epoch
            taken = epoch * (steps or 0) + (stopped_at or 0) * (repeated is not None)
        if repeated is not None:
            count = 1 + (taken * packed - 1) // elements if elements > 0 else 1
        else:
            count = 1 + (taken // size if keras_3 and size > 0 else 0)
        _add(now, each, count - begun)
        begun = count
        yield now


def _add(now: Drawn, drawn: Drawn, times: int = 1) -> None:
    now.update({shuffle: times * count for shuffle, count in drawn.items()})
