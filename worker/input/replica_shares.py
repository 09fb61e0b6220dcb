"""Weighs each replica's examples as one replica with the whole batch would weigh them.

Keras 2 divides the mean loss of a replica by the number of replicas, which is right only where all replicas
have equally many examples. An example that fills the batch of a replica without examples must not count at
all. This module uses private parts of tf_keras 2.21.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from worker.failures import program_error
from worker.input.distribution import Distributed, Share, counted
from worker.tf_compat import keras_models
from worker.tf_compat.strategies import replicas_share_variables

_current = threading.local()
"""The `Share` of the replica that is being traced; each replica is traced in a thread of its own."""


def has_keras_steps(model: Any) -> bool:
    """Returns whether filler examples can be left out, which only the steps of Keras can do."""
    return not keras_models.has_own(model, "train_step", "test_step")


def use_shares(model: Any, training: Distributed, evaluation: Distributed | None) -> None:
    """Has the steps of `model` take elements of `training` and `evaluation`.

    Losses are weighed by the replica's share of the batch: the compiled losses, the regularisation losses,
    and the losses of `add_loss`. A loss that a model's own `train_step` computes without `compiled_loss` is
    not changed where the replica has an example.
    """
    keras_models.scale_losses(part)
    model.train_step = _taking(model, training, model.train_step, True)
    if evaluation is not None:
        model.test_step = _taking(model, evaluation, model.test_step, False)
    if not has_keras_steps(model):
        leave_out(model)
    else:
        model.compute_loss = _compute_loss(model, model.compute_loss)
        model.compute_metrics = _compute_metrics(model.compute_metrics)


def return_results_once(model: Any, strategy: Any) -> None:
    """Has steps of the own class of a Keras 2 `model` return the results of its metrics in one replica, and 0
    in others. Call it once, after `use_shares`.

    Keras adds up what the replicas return: shares of a loss, but also an accuracy, which all tasks of a
    collective have alike.
    """
    if strategy.num_replicas_in_sync > 1 and not has_keras_steps(model):
        model.train_step = _once(model, model.train_step)
        model.test_step = _once(model, model.test_step)


def _once(model: Any, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def once(batch: Any) -> Any:
        returned = step(batch)
        results = {id(result) for metric in model.metrics for result in keras_models.last_results(metric)}
        return tf.nest.map_structure(
            lambda value: _in_first(value) if id(value) in results else value, returned
        )

    return once


def _in_first(value: Any) -> Any:
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    return tf.where(tf.equal(replica, 0), value, tf.zeros_like(value))


def leave_out(model: Any, *optimizers: Any) -> None:
    """Has the optimizers of `model`, and `optimizers` of the program, apply no gradients within `left_out`
    where the replica has no example. Call it once.
    """
    found = {id(each): each for each in (*keras_models.optimizers_of(model).values(), *optimizers)}
    for each in {**found, id(model.optimizer): model.optimizer}.values():
        _leave_out(each)


def _leave_out(optimizer: Any) -> None:
    # An attribute of the instance has precedence over the class's method.
    if keras_models.is_keras_3(optimizer):
        apply = optimizer.apply

        def masked_apply(grads: Any, trainable_variables: Any = None) -> Any:
            return apply(_counting(grads), trainable_variables)

        optimizer.__dict__["apply"] = masked_apply  # apply_gradients of the optimizer calls it
        return
    apply_gradients = optimizer.apply_gradients

    def masked_apply_gradients(grads_and_vars: Any, *arguments: Any, **named: Any) -> Any:
        gradients, variables = zip(*grads_and_vars)
        return apply_gradients(zip(_counting(gradients), variables), *arguments, **named)

    optimizer.__dict__["apply_gradients"] = masked_apply_gradients


def left_out(model: Any, step: Callable[[Any], Any], batch: Any, share: Share | None, trains: bool) -> Any:
    """Returns the result of `step(batch)`, which is the program's own code.

    Without an example the step changes neither the metrics of `model` nor, through the optimizers given to
    `leave_out`, the weights. Raises Failure where the step `trains` without one of them.
    """
    if share is None or replicas_share_variables(tf.distribute.get_strategy()):
        with of(share):
            return step(batch)
    variables = [variable for metric in model.metrics for variable in metric.variables]
    before = [tf.identity(variable) for variable in variables]
    with of(share):
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
    if not isinstance(returned, dict):
        return returned
    found: dict[str, Any] = {}
    again: dict[int, Any] = {}
    for metric in model.metrics:
        earlier = keras_models.last_results(metric)
        found[metric.name] = metric.result()
        again.update(zip(map(id, earlier), keras_models.last_results(metric)))
    return {name: again.get(id(value), found.get(name, value)) for name, value in returned.items()}


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


def _taking(
    model: Any, dataset: Distributed, step: Callable[[Any], Any], trains: bool
) -> Callable[[Any], Any]:
    leaves_out = not has_keras_steps(model)

    def taking(element: Any) -> Any:
        batch, share = dataset.parts(element)
        if leaves_out:
            return left_out(model, step, batch, share, trains)
        with of(share):
            return step(batch)

    return taking


def _compute_loss(model: Any, compute: Callable[..., Any]) -> Callable[..., Any]:
    weighed: set[int] = set()

    def compute_loss(x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None) -> Any:
        losses = model.compiled_loss
        if not losses.built:
            losses.build(y_pred)
        for metric in losses.metrics:
            if id(metric) not in weighed:
                weighed.add(id(metric))
                metric.update_state = _weighed(metric.update_state)
        # A replica without an example computes on one filler example, which does not count: a mean over none
        # would be NaN.
        return compute(*counted((x, y, y_pred, sample_weight), current(), least=1))

    return compute_loss


def _weighed(update: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a mean's `update_state` that leaves out the filler example."""

    def update_state(values: Any, sample_weight: Any) -> Any:
        share = current()
        if share is not None:
            sample_weight = tf.cast(share.examples, sample_weight.dtype)
        return update(values, sample_weight=sample_weight)

    return update_state


def _compute_metrics(compute: Callable[..., Any]) -> Callable[..., Any]:
    def compute_metrics(x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Any:
        return compute(*counted((x, y, y_pred, sample_weight), current()))

    return compute_metrics


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


@contextmanager
def of(share: Share | None, *, scales: bool = True) -> Iterator[None]:
    """Sets `share` as that of the replica that is traced in the block. With `scales` Keras multiplies losses
    by the replica's part of the batch.
    """
    _current.share, _current.scaled, _current.scales = share, False, scales
    try:
        yield
    finally:
        _current.share = None


def current() -> Share | None:
    """Returns the `Share` of the replica that is being traced; None where all have the same."""
    return getattr(_current, "share", None)


def part() -> Any:
    """Returns the traced replica's part of the global batch; None where all have the same.

    Keras calls it when it makes a loss: see `was_scaled`.
    """
    _current.scaled = True
    share = current()
    return None if share is None or not _current.scales else share.part


def was_scaled() -> bool:
    """Returns whether Keras has scaled a loss since `of` began."""
    return bool(getattr(_current, "scaled", False))
