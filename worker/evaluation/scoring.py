"""Scores a model on an evaluation dataset: between two epochs, beside the training, and without a training.

All replicas take part, and each example counts once. `on_workers` does the same on the workers of a
ParameterServer run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import tensorflow as tf

from worker.context import Loop
from worker.evaluation import on_workers
from worker.input import datasets
from worker.input.batch_division import Distributed
from worker.parameter_server.executions import Executions
from worker.steps.iteration import Iteration
from worker.steps.step import Steps

STEPS = 32
"""Steps in one execution."""


class Scorer(Protocol):
    """Scores a model as it is."""

    def run(self) -> dict[str, float]:
        """Returns loss and metrics over all examples."""


class ReplicaScorer:
    """Scores by the replicas of `strategy`, which step together.

    `dataset` gives the same `batches` again and again. `alive` is called after each execution, which has
    `packed()` steps. With `eagerly` the steps are plain Python.
    """

    def __init__(
        self,
        strategy: Any,
        steps: Steps,
        dataset: Distributed,
        batches: int,
        alive: Callable[[], None],
        packed: Callable[[], int] = lambda: STEPS,
        *,
        eagerly: bool = False,
    ) -> None:
        def step(batch: Any, share: Any) -> Any:
            steps.evaluate(batch, share)
            return tf.constant(0.0)

        self._strategy = strategy
        self._steps = steps
        self._batches = batches
        self._alive = alive
        self._packed = packed
        self._iteration = Iteration(strategy, step, dataset, eagerly=eagerly)

    def run(self) -> dict[str, float]:
        """Returns loss and metrics over all examples. Every task of a collective must call it."""
        with self._strategy.scope():
            self._steps.reset()
        left = self._batches
        while left:
            left -= self._iteration.run(min(self._packed(), left)).steps
            self._alive()
        return self._steps.results()


def scorer(
    loop: Loop,
    steps: Steps,
    executions: Executions | None = None,
    packed: Callable[[], int] = lambda: STEPS,
) -> Scorer | None:
    """Returns what scores the model of `steps`; None where there is an evaluator, or where the program has no
    evaluation dataset. `executions` are those on the workers of a ParameterServer run.
    """
    if executions is not None:
        return on_workers.evaluation(loop, executions, steps)
    if not (loop.validates and loop.program.has("evaluation_dataset")):
        return None
    with loop.strategy.scope():
        dataset, batches = datasets.evaluation_dataset(loop)
        steps.prepare_evaluation(dataset.element_spec)
        distributed = datasets.distributed_evaluation(loop, dataset, with_shares=True, fill=1)
    eagerly = bool(steps.model.run_eagerly)
    return ReplicaScorer(
        loop.strategy, steps, distributed, batches, loop.hooks.alive, packed, eagerly=eagerly
    )
