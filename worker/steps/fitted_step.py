"""The evaluation of a Keras 2 model whose class has a `test_step` or `compute_metrics` of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from worker.failures import program_error
from worker.input import replica_shares
from worker.input.distribution import Share, batch_count
from worker.models.model_build import of_size
from worker.program import LoadedProgram
from worker.steps import metric_updates
from worker.steps.own_results import OwnResults, flat
from worker.steps.step import Steps


class FittedSteps(Steps):
    """Evaluates by the `test_step` of the model, as its Model.evaluate does. Model.fit trains it.

    The arguments are those of `Steps`. Raises Failure where the step returns no dict.
    """

    def __init__(
        self,
        program: LoadedProgram,
        model: Any,
        global_batch_size: int,
        element: Any,
        notice: Callable[[str], None] | None = None,
    ) -> None:
        self._means: dict[str, Any] = {}
        """Means, by name, of the results of the step that are in none of the model's metrics."""
        super().__init__(program, model, global_batch_size, element, notice)
        self._own = self._traced(element)

    def evaluate(self, batch: Any, share: Share | None = None) -> None:
        """Updates the metrics with a batch of evaluation examples, in a replica's context."""
        returned: dict[str, Any] = {}

        def step(batch: Any) -> None:
            returned.update(flat(self.model.test_step(batch)))

        replica_shares.left_out(self.model, step, batch, share, trains=False)
        self._own.update_means(returned, batch_count(batch) if share is None else share.examples, _mean)

    def metrics(self) -> list[Any]:
        """Returns the metrics that the steps update."""
        return [*self.model.metrics, *self._means.values()]

    def unread_metrics(self, training: bool) -> list[Any]:
        """See `Steps`. A value of the step that is in no metric may be computed from one."""
        return list(self._means.values()) if self._own.has_values else self.metrics()

    def results_in_graph(self, training: bool = False, _count: int = 0) -> dict[str, Any]:
        """Returns the results of `results` as tensors by their names, for a tf.function."""
        results = self._own.in_graph()
        return {name: results[name] for name in self._own.names}

    def _traced(self, element: Any) -> OwnResults:
        """Finds the results of the step, and which of them are in a metric. It traces, and runs nothing."""
        strategy, model = tf.distribute.get_strategy(), self.model
        size = max(1, self.global_batch_size // self.replicas)
        returned: dict[str, Any] = {}

        def once(batch: Any) -> None:
            given = model.test_step(batch)
            if not isinstance(given, dict):
                raise program_error(
                    f"{self.program.entrypoint}: {type(model).__name__}.test_step() returned a "
                    f"{type(given).__name__}, not a dict of the metrics by their names"
                )
            returned.update(flat(given))

        for _ in range(2):
            known = len(model.metrics)
            with metric_updates.noted(model.metrics) as noted:
                traced = tf.function(lambda batch: strategy.run(once, args=(batch,)))
                traced.get_concrete_function(of_size(element, size))
            # Keras makes the compiled metrics at their first update: what is done with them is noted then.
            if len(model.metrics) == known:
                break
        return OwnResults(model, returned, noted, self._means)


def _mean(value: Any) -> Any:
    return tf.reduce_mean(tf.cast(value, tf.float32))
