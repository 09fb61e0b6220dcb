"""Weighs each replica's examples as one replica with the whole batch would weigh them.

Keras 2 divides the mean loss of a replica by the number of replicas, which is right only where all replicas
have equally many examples. An example that fills the batch of a replica without examples must not count at
all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from worker.failures import program_error
from worker.input.batch_division import Share
from worker.tf_compat import keras_models
from worker.tf_compat.replaced_methods import replace
from worker.tf_compat.strategies import replicas_share_variables

_current = threading.local()
"""The `Share` of the replica that is being traced; each replica is traced in a thread of its own."""


def leave_out(model: Any, *optimizers: Any) -> None:
    """Has the optimizers of `model`, and `optimizers` of the program, apply no gradients within `left_out`
    where the replica has no example. Call it once.
    """
    optimizers_by_id = {id(each): each for each in (*keras_models.optimizers_of(model).values(), *optimizers)}
    for each in {**optimizers_by_id, id(model.optimizer): model.optimizer}.values():
        _leave_out(each)


def _leave_out(optimizer: Any) -> None:
    if keras_models.is_keras_3(optimizer):
        apply = optimizer.apply

        def masked_apply(grads: Any, trainable_variables: Any = None) -> Any:
            return apply(_counting(grads), trainable_variables)

        replace(optimizer, apply=masked_apply)  # apply_gradients of the optimizer calls it
        return
    apply_gradients = optimizer.apply_gradients

    def masked_apply_gradients(grads_and_vars: Any, *arguments: Any, **named: Any) -> Any:
        pairs = list(grads_and_vars)  # none where all layers are frozen
        gradients = _counting(gradient for gradient, _ in pairs)
        return apply_gradients(zip(gradients, (variable for _, variable in pairs)), *arguments, **named)

    replace(optimizer, apply_gradients=masked_apply_gradients)


def left_out(
    model: Any,
    step: Callable[[Any], Any],
    batch: Any,
    share: Share | None,
    trains: bool,
    *,
    whole: bool = False,
) -> Any:
    """Returns the result of `step(batch)`, which is the program's own code. `whole` is that of `of`.

    Without an example the step changes neither the metrics of `model` nor, through the optimizers given to
    `leave_out`, the weights. Raises Failure where the step `trains` without one of them.
    """
    if share is None or replicas_share_variables(tf.distribute.get_strategy()):
        with of(share, whole=whole, by_program=True):
            return step(batch)
    variables = [variable for metric in model.metrics for variable in metric.variables]
    before = [tf.identity(variable) for variable in variables]
    with of(share, whole=whole, by_program=True):
        _current.applied = False
        returned = step(batch)
        if trains and not _current.applied:
            raise program_error(
                "a step of the program's own that does not call apply_gradients() of the model's optimizer "
                "cannot leave out a replica for which a batch has no example: end train_dataset() with "
                ".batch(batch_size, drop_remainder=True)"
            )
    for variable, value in zip(variables, before):
        variable.assign(tf.where(share.examples > 0, tf.identity(variable), value))
    return returned


def _counting(gradients: Iterable[Any]) -> list[Any]:
    share = current()
    if share is None:
        return list(gradients)
    _current.applied = True
    return [_masked(gradient, share) for gradient in gradients]


def _masked(gradient: Any, share: Share) -> Any:
    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(_masked(gradient.values, share), gradient.indices, gradient.dense_shape)
    return tf.where(share.examples > 0, gradient, tf.zeros_like(gradient))


def over_replicas(*values: Any) -> tuple[Any, ...]:
    """Returns each of `values`, a scalar of the examples that count, added up over all replicas. All replicas
    must call it.
    """
    replica = tf.distribute.get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1:
        return values
    share = current()
    if share is not None:  # a replica without an example computes on a filler example
        values = tuple(tf.where(share.examples > 0, value, tf.zeros_like(value)) for value in values)
    return tuple(replica.all_reduce(tf.distribute.ReduceOp.SUM, list(values)))


def of_all_replicas(*values: Any) -> tuple[Any, ...]:
    """Returns each of `values`, `[rows, ...]` of this replica, with the rows of all replicas in their order,
    and without examples that do not count. Gradients reach the replica's own rows. All replicas must call it.
    """
    share = current()
    if share is not None:
        values = tuple(value[: share.examples] for value in values)
    replica = tf.distribute.get_replica_context()
    number, rows = replica.replica_id_in_sync_group, tf.shape(values[0])[0]
    counts = rows * tf.one_hot(number, replica.num_replicas_in_sync, dtype=rows.dtype)
    # By sums alone, whose gradient TensorFlow has: that of its all_gather is another all_gather.
    counts = replica.all_reduce(tf.distribute.ReduceOp.SUM, counts)
    before = tf.reduce_sum(counts[:number])
    behind = tf.reduce_sum(counts) - before - rows

    def padded(value: Any) -> Any:
        numbers = tf.cast(value, tf.int32) if value.dtype == tf.bool else value
        return tf.pad(numbers, [[before, behind], *[[0, 0]] * (value.shape.rank - 1)])

    sums = replica.all_reduce(tf.distribute.ReduceOp.SUM, [padded(value) for value in values])
    wholes = [tf.cast(whole, value.dtype) for whole, value in zip(sums, values)]
    for whole, value in zip(wholes, values):
        whole.set_shape([None, *value.shape[1:]])
    return tuple(wholes)


@contextmanager
def of(share: Share | None, *, whole: bool = False, by_program: bool = False) -> Iterator[None]:
    """Sets `share` as that of the replica that is traced in the block: Keras multiplies losses by the
    replica's part of the batch. With `whole` it does not, as in one process. `by_program`: the block is a
    step of the program's own.
    """
    _current.share, _current.scaled, _current.losses = share, False, []
    _current.whole, _current.by_program = whole, by_program
    try:
        yield
    finally:
        _current.share, _current.whole, _current.by_program = None, False, False


@contextmanager
def as_in_one_process() -> Iterator[None]:
    """Has Keras not multiply losses by the replica's part of the batch in the block."""
    _current.whole = True
    try:
        yield
    finally:
        _current.whole = False


def is_whole() -> bool:
    """Returns whether Keras does not multiply losses by the replica's part of the batch now."""
    return bool(getattr(_current, "whole", False))


def current() -> Share | None:
    """Returns the `Share` of the replica that is being traced; None where all have the same."""
    return getattr(_current, "share", None)


def part() -> Any:
    """Returns the traced replica's part of the global batch; None where all have the same.

    Keras calls it when it makes a loss: see `was_scaled`.
    """
    _current.scaled = True
    share = current()
    if is_whole():
        return tf.constant(1.0)
    return None if share is None else share.part


def whole_part() -> Any:
    """Returns the traced replica's part of the global batch where a mean over its examples is computed as in
    one process; None in a step of the program's own in which Keras multiplies losses by the part, and where
    all replicas have the same.
    """
    share = current() if is_whole() or not getattr(_current, "by_program", False) else None
    return None if share is None else share.part


def was_scaled() -> bool:
    """Returns whether Keras has made a loss since `of` began: a share of the global batch's."""
    return bool(getattr(_current, "scaled", False))


def made(loss: Any) -> Any:
    """Returns the compiled `loss` of a replica, and notes it for `losses`: 0 where the replica has no
    example. A sum over the examples is not scaled, and would count the filler example.
    """
    if loss is None:
        return None
    share = current()
    loss = loss if share is None else tf.where(share.examples > 0, loss, tf.zeros_like(loss))
    _current.scaled = True
    _current.losses = [*losses(), loss]
    return loss


def losses() -> list[Any]:
    """Returns the compiled losses that were made since `of` began, each a share of the global batch's."""
    return list(getattr(_current, "losses", []))
