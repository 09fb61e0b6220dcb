"""The data of `Model.fit` and of its evaluation, for each kind of strategy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from worker.cluster.executions import Executions
from worker.context import Loop
from worker.evaluation import inline
from worker.input import datasets, replica_shares
from worker.input.distribution import Once
from worker.steps.choice import steps_of
from worker.tf_compat.strategies import uses_coordinator


@dataclass(frozen=True)
class FitData:
    """The data for `Model.fit`. `training()` is called anew for each call of fit. `callbacks` evaluate where
    `validation` is None and the program has an evaluation dataset.
    """

    training: Callable[[], Any]
    validation: Any = None
    validation_steps: int | None = None
    callbacks: list[Any] = field(default_factory=list)


def prepare(loop: Loop, model: Any, dataset: Any, steps: int | None, own: list[Any]) -> FitData:
    """Prepares the program's `dataset` with `steps` in an epoch; `own` are the program's callbacks."""
    if uses_coordinator(loop.strategy):
        return _on_workers(loop, model, dataset, own)
    dataset = datasets.served_training(loop, dataset, steps)
    if not isinstance(dataset, tf.data.Dataset) or steps is None:
        return _as_keras_does(loop, dataset, steps)
    wanted = {"with_shares": True, "fill": 1}
    if not replica_shares.has_keras_steps(model):
        dataset = datasets.refusing_small_batches(loop, dataset)
    evaluation, evaluation_steps = None, None
    with loop.strategy.scope():
        if _evaluates(loop):
            held_out, evaluation_steps = datasets.evaluation_dataset(loop)
            evaluation = datasets.distributed_evaluation(loop, held_out, **wanted)
        if replica_shares.has_keras_steps(model) and datasets.wants_equal_shapes(
            loop, model, dataset.element_spec
        ):
            wanted["fill"] = loop.part_size
        training = datasets.distributed_training(loop, dataset, steps, **wanted)
    if training.has_shares or (evaluation is not None and evaluation.has_shares):
        replica_shares.use_shares(model, training, evaluation)

    made: list[Once] = []

    def iterated() -> Any:
        if not (made and loop.elastic is not None):
            made.append(Once(training.elements))
        return made[-1]

    loop.hooks.kept.append(made)
    validation = Once(evaluation.elements) if evaluation is not None else None
    loop.hooks.kept.append(validation)
    return FitData(iterated, validation, evaluation_steps)


def _as_keras_does(loop: Loop, dataset: Any, steps: int | None) -> FitData:
    """Prepares a DatasetCreator, or a dataset whose number of steps is unknown until it is read."""
    validation, validation_steps = None, None
    if _evaluates(loop):
        validation, validation_steps = datasets.evaluation_dataset(loop)
        validation = datasets.shared_by_data(loop, validation)
    if isinstance(dataset, tf.data.Dataset):
        dataset = datasets.repeated(loop, dataset, steps)
    return FitData(lambda: dataset, validation, validation_steps)


def _on_workers(loop: Loop, model: Any, dataset: Any, own: list[Any]) -> FitData:
    if isinstance(dataset, tf.data.Dataset) or loop.data_service is not None:
        dataset = tf.keras.utils.experimental.DatasetCreator(datasets.on_each_worker(loop, dataset))
    found = [_Evaluation(loop, model, own)] if _evaluates(loop) else []
    return FitData(lambda: dataset, callbacks=found)


def _evaluates(loop: Loop) -> bool:
    return loop.validates and loop.program.has("evaluation_dataset")


class _Evaluation(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Evaluates on the workers of a ParameterServer run after each epoch, before other callbacks run.

    Keras' own evaluation does not support several outputs, weights or regularisation losses, and fails where
    there are fewer batches than its shards (tf_keras 2.21).
    """

    def __init__(self, loop: Loop, model: Any, own: list[Any]) -> None:
        super().__init__()
        self._supports_tf_logs = True
        self._loop = loop
        self._own = own
        # A strategy has one coordinator: Keras will get this one.
        coordinator = tf.distribute.coordinator.ClusterCoordinator(loop.strategy)
        with loop.strategy.scope():
            size, element = loop.parameters.global_batch_size, loop.program.element
            steps = steps_of(loop.program, model, size, element, loop.hooks.reporter.notice)
        executions = Executions(
            coordinator, loop.count_workers, lambda _: loop.hooks.alive(), loop.hooks.failed
        )
        self._evaluation = inline.evaluation(loop, coordinator, executions, steps)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Adds its results to `logs`."""
        if self._evaluation is not None and logs is not None:
            self._loop.hooks.enter(f"evaluating epoch {epoch + 1}")
            for callback in self._own:
                callback.on_test_begin()
            found = self._evaluation.run()
            for callback in self._own:
                callback.on_test_end(found)
            logs.update({f"val_{name}": value for name, value in found.items()})
            self._loop.hooks.enter("training")
