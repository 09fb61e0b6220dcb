"""`train_on_batch` and its like: a call is one step, of all replicas or of one worker of a coordinator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from worker.context import Loop
from worker.input.batch_division import Distributed, distributed_batch
from worker.parameter_server.executions import Executions
from worker.steps import model_build
from worker.steps.choice import steps_of
from worker.steps.iteration import Iteration
from worker.steps.replica_model import replica_model
from worker.tf_compat import keras_models
from worker.tf_compat.strategies import uses_coordinator


class ByBatch:
    """The calls of the model of a `loop` as it is compiled; the first is one of `method`. `element` is the
    spec of a batch of any size.
    """

    def __init__(self, loop: Loop, element: Any, method: str) -> None:
        self._strategy = loop.strategy
        model = replica_model(loop)
        with loop.strategy.scope():
            model_build.build(model, element, loop.program.entrypoint)
            keras_models.build_optimizer(model.optimizer, model.trainable_variables)
            self._steps = steps_of(loop, model, element)
            self._steps.prepare_evaluation(element)
        if uses_coordinator(loop.strategy):
            loop.notice(
                f"{loop.program.entrypoint}: {method}() waits for its step, so that one worker "
                "computes at a time: fit() keeps all of them busy"
            )
            executions = loop.executions()
            self._train = self._on_worker(executions, self._steps.train, element)
            self._test = self._on_worker(executions, self._steps.evaluate, element)
        else:
            eagerly = bool(model.run_eagerly)
            self._train = self._on_replicas(self._steps.train, eagerly)
            self._test = self._on_replicas(self._evaluate, eagerly)

    def results(self, batch: Any, *, training: bool, resets: bool) -> dict[str, Any]:
        """Trains with a batch, or only scores it. Returns loss and metrics: those of earlier batches count,
        too, unless it `resets` them. Every task of a collective must call it.
        """
        if resets:
            with self._strategy.scope():
                self._steps.reset()
        (self._train if training else self._test)(batch)
        return self._steps.results(training=training)

    def _on_replicas(self, step: Callable[..., Any], eagerly: bool) -> Callable[[Any], None]:
        calls = Distributed((), has_shares=self._strategy.num_replicas_in_sync > 1)
        iteration = Iteration(self._strategy, step, calls, by_batch=True, eagerly=eagerly)

        def run(batch: Any) -> None:
            iteration.step(distributed_batch(self._strategy, batch))

        return run

    def _on_worker(
        self, executions: Executions, step: Callable[..., Any], element: Any
    ) -> Callable[[Any], None]:
        def one(batch: Any) -> None:
            self._strategy.run(step, args=(batch,))

        function = tf.function(one, input_signature=[element])

        def run(batch: Any) -> None:
            executions.schedule(function, (batch,))
            executions.join()

        return run

    def _evaluate(self, batch: Any, share: Any) -> Any:
        self._steps.evaluate(batch, share)
        return tf.constant(0.0)
