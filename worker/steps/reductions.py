"""Whether a value of a step is a mean over a replica's examples, or the replica's share of a larger sum.

A step of the program's own decides that itself: `tf.reduce_mean(losses)` is a mean, and
`tf.reduce_sum(losses) / global_batch_size` a share. Gradients of replicas are added up, so a mean trains
with several times the gradient of one process; and the mean of shares is a part of the value. The graph of
the step tells the two apart, where it divides by numbers that are known.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from worker.tf_compat.graphs import frames_of_operation, is_of_variables

_current = threading.local()
_SAME = {
    "Identity",
    "Cast",
    "Reshape",
    "Squeeze",
    "StopGradient",
    "CheckNumerics",
    "Neg",
    "ExpandDims",
    "BroadcastTo",
}
_PRODUCTS = {"MatMul", "BatchMatMulV2", "Einsum"}
_OF_SHAPE = {"Cast", "Identity", "StridedSlice", "Prod", "Maximum"}
_TERMS = {"AddV2", "Add", "AddN", "Sub"}


class Reduction:
    """What a term of a value is computed by: `times` the mean over the replica's examples, or, where their
    number is not known, `times` their sum. `by_size` says that a sum was divided by their number, whatever it
    is. `output` is the tensor of the mean or the sum, and `frames` are the lines where it was made, outermost
    first.
    """

    def __init__(self, operation: Any, factor: float, by_size: bool) -> None:
        self.output = operation.outputs[0]
        self._is_sum = is_sum = operation.type != "Mean" and not by_size
        count = operation.inputs[0].shape.num_elements() if is_sum else 1
        if operation.type in _PRODUCTS:
            count = None
        self._is_mean = count is not None
        self._times = factor * (count or 1)
        self._of_sum = factor if is_sum else 0.0
        self.frames = frames_of_operation(operation)

    def is_sum(self) -> bool:
        """Returns whether it is a sum over the replica's examples, whatever it is multiplied by."""
        return self._is_sum and not self.is_mean()

    def is_mean(self) -> bool:
        """Returns whether it is the mean over the replica's examples."""
        return self._is_mean and math.isclose(self._times, 1.0, rel_tol=1e-6)

    def is_share(self, replicas: int, global_batch_size: int) -> bool:
        """Returns whether those of all `replicas` add up to the mean over the global batch. What sums more
        than a value of each example may look like a mean, too, such as a GAN's of real and made ones.
        """
        wanted = 1.0 / (replicas if self._is_mean else global_batch_size)
        by_batch = math.isclose(self._of_sum, 1.0 / global_batch_size, rel_tol=1e-6)
        return by_batch or math.isclose(self._times, wanted, rel_tol=1e-6)


def reductions(value: Any) -> list[Reduction]:
    """Returns the reductions over examples in the terms of `value`, a scalar tensor of a trace. It returns
    none where they are divided by what only the run knows.
    """
    terms: list[Reduction] = []
    return terms if _collect(value, 1.0, False, terms) else []


def is_sum(value: Any) -> bool:
    """Returns whether `value` is the sum of terms over the replica's examples, and not their mean."""
    terms = reductions(value)
    return bool(terms) and all(each.is_sum() for each in terms)


def adds_up(value: Any) -> bool:
    """Returns whether the values of replicas, weighed by their examples, add up to that of one process."""
    terms = reductions(value)
    return bool(terms) and all(each.is_sum() or each.is_mean() for each in terms)


@contextlib.contextmanager
def differentiated(weigh: Callable[[Any], Any] | None = None) -> Iterator[list[Any]]:
    """Yields a list to which the losses are added that this thread differentiates in the block. What `weigh`
    returns for one is differentiated in its place.
    """
    if not hasattr(tf.GradientTape.gradient, "noting"):
        tf.GradientTape.gradient = _noting(tf.GradientTape.gradient)
    targets: list[Any] = []
    _current.targets, _current.weigh = targets, weigh
    try:
        yield targets
    finally:
        _current.targets = _current.weigh = None


def _noting(original: Any) -> Any:
    """Returns a method `gradient` that notes its targets. It stays: the replicas, each in a thread, take
    turns while a step is traced.
    """

    @functools.wraps(original)
    def gradient(tape: Any, target: Any, *arguments: Any, **options: Any) -> Any:
        targets = getattr(_current, "targets", None)
        if targets is not None:
            targets.extend(tf.nest.flatten(target))
            if _current.weigh is not None:
                with tape:
                    target = tf.nest.map_structure(_current.weigh, target)
        return original(tape, target, *arguments, **options)

    gradient.noting = True  # type: ignore[attr-defined]
    return gradient


def _collect(
    value: Any, factor: float, by_size: bool, terms: list[Reduction], divisors: tuple[float, ...] = ()
) -> bool:
    """Adds the reductions of `value` to `terms`, which is multiplied by `factor`, and of that divided by the
    `divisors`. Returns whether one of its terms is known.
    """
    operation = getattr(value, "op", None) if tf.is_symbolic_tensor(value) else None
    if operation is None:
        return False
    kind, inputs = operation.type, list(operation.inputs)
    if kind in ("Mean", "Sum"):
        axes = tf.get_static_value(inputs[1])
        rank = inputs[0].shape.rank
        if axes is None or rank is None:
            return False
        if rank == 0 or not axes.size:
            return _collect(inputs[0], factor, by_size, terms, divisors)
        stacked = inputs[0].op
        if stacked.type == "Const":  # such as the sum of no penalties
            return False
        if stacked.type == "Pack" and rank == 1:  # a list of scalars: their terms
            each_by = factor / len(stacked.inputs) if kind == "Mean" else factor
            known = [_collect(each, each_by, by_size, terms, divisors) for each in stacked.inputs]
            return any(known)
        if not any(axis in (0, -rank) for axis in axes.flatten()) or is_of_variables(inputs[0]):
            return False
        examples = inputs[0].shape[0]
        if kind == "Sum" and examples in divisors and 1 < examples != inputs[0].shape.num_elements():
            # So Keras regularises activities of a batch whose size is known.
            factor, by_size = factor * examples, True
        terms.append(Reduction(operation, factor, by_size))
        return True
    if kind in _PRODUCTS and _sums_examples(operation):
        terms.append(Reduction(operation, factor, by_size))
        return True
    if kind in _SAME:
        return _collect(inputs[0], -factor if kind == "Neg" else factor, by_size, terms, divisors)
    if kind in _TERMS:
        # A term that is no reduction, such as a penalty on weights, says nothing about the others.
        known = [_collect(each, factor, by_size, terms, divisors) for each in inputs]
        return any(known)
    if kind in ("Mul", "RealDiv", "DivNoNan"):
        constants = [tf.get_static_value(each) for each in inputs]
        if constants[1] is not None and constants[1].size == 1:
            by = float(constants[1].reshape(-1)[0])
            if kind == "Mul" or by == 0:
                return by != 0 and _collect(inputs[0], factor * by, by_size, terms, divisors)
            return _collect(inputs[0], factor / by, by_size, terms, (*divisors, by))
        if kind == "Mul" and constants[0] is not None and constants[0].size == 1:
            by = float(constants[0].reshape(-1)[0])
            return _collect(inputs[1], factor * by, by_size, terms, divisors)
        if kind != "Mul" and _is_size(inputs[1]):
            return _collect(inputs[0], factor, True, terms, divisors)
    return False


def _sums_examples(operation: Any) -> bool:
    """Returns whether a product of two matrices has a row for each example in both, and sums over them."""
    left, right = operation.inputs[0], operation.inputs[-1]
    if is_of_variables(left) or is_of_variables(right):
        return False
    if operation.type == "Einsum":
        terms, _, result = operation.get_attr("equation").decode().partition("->")
        first = {term[:1] for term in terms.split(",")}
        return len(first) == 1 and not first & set(result)
    is_transposed = operation.get_attr("transpose_a" if operation.type == "MatMul" else "adj_x")
    return left.shape.rank == 2 and bool(is_transposed or left.op.type == "Transpose")


def _is_size(value: Any) -> bool:
    """Returns whether `value` is taken from the shape of a tensor."""
    operation = value.op
    while operation.type in _OF_SHAPE:
        operation = operation.inputs[0].op
        if operation.type in ("Shape", "Size", "Const"):  # a known shape is a constant
            return True
    return str(operation.type) == "Size"
