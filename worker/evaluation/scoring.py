"""Scores a model on an evaluation dataset: between two epochs, beside the training, and without a training.

All replicas take part, and each example counts once. `on_workers` does the same on the workers of a
ParameterServer run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import tensorflow as tf

from worker.checkpoints.position import Position
from worker.context import Loop
from worker.evaluation.on_workers import WorkersScorer
from worker.failures import program_error
from worker.input import continuation, datasets
from worker.parameter_server.executions import Executions
from worker.steps import model_build
from worker.steps.choice import steps_of
from worker.steps.iteration import Iteration
from worker.steps.step import Steps
from worker.tf_compat import keras_models
from worker.tf_compat.strategies import uses_coordinator

_STEPS = 32
"""Steps in one execution, where the training's number is not known."""


class Scorer(Protocol):
    """Scores a model as it is."""

    def run(self, callbacks: Any = None) -> dict[str, Any]:
        """Returns loss and metrics over all examples. `callbacks`, a CallbackList of Keras', have their hooks
        called before and after every batch; without them many batches are scored at once.
        """


class ReplicaScorer:
    """Scores the model of `steps` by the replicas, which step together.

    `dataset` gives `batches` again and again. An execution has `packed()` steps.
    """

    def __init__(
        self, loop: Loop, steps: Steps, dataset: Any, batches: int, packed: Callable[[], int] | None
    ) -> None:
        def step(batch: Any, share: Any) -> Any:
            steps.evaluate(batch, share)
            return tf.constant(0.0)

        self._loop = loop
        self._steps = steps
        self._batches = batches
        self._packed = packed or (lambda: _STEPS)
        with loop.strategy.scope():
            distributed = datasets.distributed_evaluation(loop, dataset, with_shares=True, fill=1)
        self._iteration = Iteration(
            loop.strategy,
            step,
            distributed,
            by_batch=datasets.gathers_batches(loop, steps.model, dataset.element_spec),
            eagerly=bool(steps.model.run_eagerly),
        )

    def run(self, callbacks: Any = None) -> dict[str, Any]:
        """See `Scorer`. Every task of a collective must call it."""
        with self._loop.strategy.scope():
            self._steps.reset()
        done = 0
        while done < self._batches:
            if callbacks is None:
                done += self._iteration.run(min(self._packed(), self._batches - done)).steps
            else:
                callbacks.on_test_batch_begin(done)
                done += self._iteration.run(1).steps
                callbacks.on_test_batch_end(done - 1, self._steps.results())
            self._loop.hooks.alive()
        return self._steps.results()


def called(scorer: Scorer, callbacks: Any) -> dict[str, Any]:
    """Returns the results of `scorer`, with the hooks of `callbacks` for evaluations called."""
    by_batch = any(keras_models.has_batch_hooks(each, "test") for each in callbacks.callbacks)
    callbacks.on_test_begin()
    metrics = scorer.run(callbacks if by_batch else None)
    callbacks.on_test_end(metrics)
    return metrics


def between_epochs(
    loop: Loop,
    steps: Steps,
    position: Position,
    executions: Executions | None = None,
    packed: Callable[[], int] | None = None,
) -> Scorer | None:
    """Returns what scores the model of `steps` in a training; None where there is an evaluator, or where the
    program has no evaluation dataset. The training goes on at `position` of its data. `executions` are those
    on the workers of a ParameterServer run.
    """
    if not loop.validates:
        return None
    if not loop.program.has("evaluation_dataset"):
        if loop.evaluation.get("exact"):
            raise program_error(
                f"spec.evaluation.exact: {loop.program.entrypoint} has no method "
                "evaluation_dataset(batch_size)"
            )
        return None
    with loop.strategy.scope():
        data = datasets.evaluation_dataset(loop)
    initial = loop.parameters.initial_epoch
    done = sum(map(loop.parameters.validates, range(initial, initial + position.epochs)))
    return _scorer(loop, steps, data, executions, packed, done)


def of_model(loop: Loop, model: Any) -> Scorer:
    """Returns what scores `model`, whose variables it makes, on the program's evaluation dataset."""
    with loop.strategy.scope():
        dataset, batches = datasets.evaluation_dataset(loop)
        model_build.build(model, dataset.element_spec, loop.program.entrypoint)
        steps = steps_of(loop, model, dataset.element_spec)
    executions = loop.executions() if uses_coordinator(loop.strategy) else None
    return _scorer(loop, steps, (dataset, batches), executions)


def _scorer(
    loop: Loop,
    steps: Steps,
    data: tuple[Any, int],
    executions: Executions | None,
    packed: Callable[[], int] | None = None,
    done: int = 0,
) -> Scorer:
    """So many evaluations are `done`."""
    dataset, batches = data
    with loop.strategy.scope():
        steps.prepare_evaluation(dataset.element_spec)
    passes = continuation.scored(loop, dataset, done)
    if executions is not None:
        return WorkersScorer(loop, steps, dataset, executions, None if passes is dataset else passes, batches)
    return ReplicaScorer(loop, steps, passes, batches, packed)
