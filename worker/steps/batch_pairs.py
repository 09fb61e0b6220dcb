"""Whether a step compares the examples of a batch with each other, as contrastive losses do, and retrieval
with the batch's others as negatives. With several replicas each has the pairs of its own examples only.

What compares has a tensor with the batch's size twice in its shape, such as `[batch, batch]`. So may one of
another kind have, where a sequence is as long as the batch: there only one of the two follows the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from worker.tf_compat.graphs import nested

_MORE = 7
"""By how much the second of two batches is larger."""


def may_compare(graph: Any, size: int | None) -> bool:
    """Returns whether `graph`, of a step with batches of `size`, None where it is not known, may do so."""
    return any(_count(shape, (None, size)) > 1 for _, shape in _shapes(graph))


def comparing(traced: Callable[[int], Any], size: int) -> Any:
    """Returns the first operation that compares the examples; None where none does. `traced` returns the
    graph of the step with batches of a size.
    """
    small = dict(_squares(traced(size), size))
    large = dict(_squares(traced(size + _MORE), size + _MORE)) if small else {}
    return next((operation for name, operation in small.items() if name in large), None)


def _squares(graph: Any, size: int) -> Iterator[tuple[str, Any]]:
    for operation, shape in _shapes(graph):
        if _count(shape, (size,)) > 1:
            yield operation.name, operation


def _count(shape: list[int | None], sizes: tuple[int | None, ...]) -> int:
    return sum(each in sizes for each in shape)


def _shapes(graph: Any) -> Iterator[tuple[Any, list[int | None]]]:
    """Yields the operations of numbers, with the shape of each result."""
    for each in nested(graph):
        for operation in each.get_operations():
            for output in operation.outputs:
                if output.dtype.is_floating and output.shape.rank is not None:
                    yield operation, output.shape.as_list()
