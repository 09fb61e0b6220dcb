"""`train_on_batch` and its like: one step of all replicas for each call."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from worker.context import Loop
from worker.input.batch_division import Distributed, distributed_batch
from worker.steps import model_build
from worker.steps.choice import steps_of
from worker.steps.iteration import Iteration
from worker.steps.replica_model import replica_model
from worker.tf_compat import keras_models


class ByBatch:
    """The calls of the model of a `loop` as it is compiled. `element` is the spec of a batch of any size."""

    def __init__(self, loop: Loop, element: Any) -> None:
        self._strategy = loop.strategy
        model = replica_model(loop)
        with loop.strategy.scope():
            model_build.build(model, element, loop.program.entrypoint)
            keras_models.build_optimizer(model.optimizer, model.trainable_variables)
            self._steps = steps_of(loop, model, element)
            self._steps.prepare_evaluation(element)
        calls = Distributed((), has_shares=loop.strategy.num_replicas_in_sync > 1)
        eagerly = bool(model.run_eagerly)
        self._training = Iteration(loop.strategy, self._steps.train, calls, by_batch=True, eagerly=eagerly)
        self._testing = Iteration(loop.strategy, self._test, calls, by_batch=True, eagerly=eagerly)

    def results(self, batch: Any, *, training: bool, resets: bool) -> dict[str, float]:
        """Trains with a batch, or only scores it. Returns loss and metrics: those of earlier batches count,
        too, unless it `resets` them. Every task of a collective must call it.
        """
        if resets:
            with self._strategy.scope():
                self._steps.reset()
        by = self._training if training else self._testing
        by.step(distributed_batch(self._strategy, batch))
        return self._steps.results(training=training)

    def _test(self, batch: Any, share: Any) -> Any:
        self._steps.evaluate(batch, share)
        return tf.constant(0.0)
