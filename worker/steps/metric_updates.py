"""What a step does with metrics: which of them it updates, and which results it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from worker.tf_compat import keras_3
from worker.tf_compat.replaced_methods import replaced


class Noted:
    """What was done with metrics while a step was traced."""

    def __init__(self) -> None:
        self.updated: set[int] = set()
        """The ids of the metrics that were updated, and of their parts."""
        self._results: list[tuple[Any, Any]] = []

    def results(self) -> list[tuple[Any, Any]]:
        """Returns the results that were read and are one tensor, each with its metric."""
        return [(result, metric) for result, metric in self._results if hasattr(result, "op")]

    def _updates(self, metric: Any, ids: set[int]) -> Callable[..., Any]:
        update = metric.update_state

        def update_state(*arguments: Any, **options: Any) -> Any:
            self.updated.update(ids)
            return update(*arguments, **options)

        return update_state

    def _reads(self, metric: Any) -> Callable[[], Any]:
        read = metric.result

        def result() -> Any:
            value = read()
            self._results.append((value, metric))
            return value

        return result

    def replacements(self, metric: Any, ids: set[int]) -> dict[str, Callable[..., Any]]:
        """Returns methods for `metric` that note what they do; `ids` are its own and its container's."""
        return {"update_state": self._updates(metric, ids), "result": self._reads(metric)}


@contextmanager
def noted(metrics: Iterable[Any]) -> Iterator[Noted]:
    """Notes what is done with `metrics` in the block, and with their parts: Keras 3 keeps the compiled
    metrics in one metric.
    """
    notes = Noted()
    with ExitStack() as stack:
        for metric in metrics:
            for part in keras_3.parts(metric):
                methods = notes.replacements(part, {id(metric), id(part)})
                stack.enter_context(replaced(part, **methods))
        yield notes
