"""What a model's own step returns: results of its metrics, and values that are in none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from worker.steps.metric_updates import Noted
from worker.tf_compat.graphs import computed_from


class OwnResults:
    """The results of a `train_step`, `test_step` or `compute_metrics` of the model's own class.

    `returned` are its values, by their names, and `noted` is what it has done with the metrics of `model`,
    both found by tracing it. A value that is a metric's result, or is computed from results alone, such as an
    F1 of a precision and a recall, is computed from their results over all steps. `means` has means of the
    other values that are in no metric, by name. The constructor adds those that are missing, so construct it
    under the strategy's scope. With `of_last_step` a mean is that of the last step, which Model.fit of one
    process reports, and not of all steps.
    """

    def __init__(
        self,
        model: Any,
        returned: Mapping[str, Any],
        noted: Noted,
        means: dict[str, Any],
        of_last_step: bool,
    ) -> None:
        self._of_last_step = of_last_step
        self.names = list(returned)
        self._model = model
        self._means = means
        self._updated = noted.updated
        computed = {key: _computed(value, noted) for key, value in returned.items()}
        self._computed = {key: each for key, each in computed.items() if each is not None}
        named = {name for metric in self._kept() for name in _names(metric)}
        for key in returned:
            if key not in named and key not in self._computed and key not in means:
                means[key] = tf.keras.metrics.Mean(name=key)

    @property
    def has_values(self) -> bool:
        """Returns whether a value is in no metric. It may still be computed from one."""
        return any(key in self._means for key in self.names)

    def update_means(self, returned: Mapping[str, Any], examples: Any, mean: Callable[[Any], Any]) -> None:
        """Updates the means with values of the step, weighed by the number of its `examples`. `mean(value)`
        returns a value's mean over the replica's examples, `float32[]`.
        """
        weight = tf.cast(examples, tf.float32)
        for key in self.names:
            if key in self._means and key not in self._computed:
                if self._of_last_step:
                    self._means[key].reset_state()
                self._means[key].update_state(tf.where(weight > 0, mean(returned[key]), 0.0), weight)

    def in_graph(self) -> dict[str, Any]:
        """Returns the results over all steps as tensors by their names, for a tf.function: those that the
        code returns, or where it returns none, those of the metrics that it updates.
        """
        results = results_of([*self._kept(), *self._means.values()])
        for name, (function, metrics) in self._computed.items():
            results[name] = function([metric.result() for metric in metrics])
        return {name: results[name] for name in self.names or results if name in results}

    def _kept(self) -> list[Any]:
        return [metric for metric in self._model.metrics if id(metric) in self._updated]


def _computed(value: Any, noted: Noted) -> tuple[Callable[..., Any], list[Any]] | None:
    """Returns the function that computes `value` from results of metrics, and those metrics; None where the
    step computes it from something else, too.
    """
    sources = noted.results()
    function = computed_from(value, [result for result, _ in sources])
    return None if function is None else (function, [metric for _, metric in sources])


def flat(returned: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `returned` with what is in dicts within, as are those that Keras 3's compiled metrics give
    together.
    """
    results: dict[str, Any] = {}
    for name, value in returned.items():
        results.update(value if isinstance(value, dict) else {name: value})
    return results


def _names(metric: Any) -> list[str]:
    """Returns the names of the results of `metric`."""
    traced = tf.function(lambda: results_of([metric])).get_concrete_function()
    return list(traced.structured_outputs)


def results_of(metrics: Iterable[Any]) -> dict[str, Any]:
    """Returns the results of `metrics` by name: one metric may have several."""
    results: dict[str, Any] = {}
    for metric in metrics:
        result = metric.result()
        results.update(result if isinstance(result, dict) else {metric.name: result})
    return results
