"""Which metrics a step updates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from worker.tf_compat import keras_3


@contextmanager
def noted(metrics: Iterable[Any]) -> Iterator[set[int]]:
    """Gives the ids of those of `metrics` that are updated in the block, and of their parts: Keras 3 keeps
    the compiled metrics in one metric.
    """
    updated: set[int] = set()
    found = [(part, {id(metric), id(part)}) for metric in metrics for part in keras_3.parts(metric)]
    before = [part.__dict__.get("update_state") for part, _ in found]

    def noting(update: Callable[..., Any], ids: set[int]) -> Callable[..., Any]:
        def update_state(*arguments: Any, **options: Any) -> Any:
            updated.update(ids)
            return update(*arguments, **options)

        return update_state

    for part, ids in found:
        # An attribute of the instance has precedence over the class's method.
        part.__dict__["update_state"] = noting(part.update_state, ids)
    try:
        yield updated
    finally:
        for (part, _), own in zip(found, before):
            del part.__dict__["update_state"]
            if own is not None:
                part.__dict__["update_state"] = own
