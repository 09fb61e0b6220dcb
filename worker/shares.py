"""Has `Model.fit` of Keras 2 count each replica's examples as one replica with the whole batch would.

Keras divides the mean loss of a replica by the number of replicas, which is right only where all have as
many examples. This module touches what tf_keras 2.21 keeps to itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from worker.distribution import Distributed, Share, counted

_current = threading.local()
"""The `Share` of the replica that is being traced, each in a thread of its own."""


def has_keras_steps(model: Any) -> bool:
    """Whether examples that do not count can be left out: where the steps are Keras' own."""
    kinds = [getattr(type(model), name) for name in ("train_step", "test_step")]
    return kinds == [tf.keras.Model.train_step, tf.keras.Model.test_step]


def use_shares(model: Any, training: Distributed, evaluation: Distributed | None) -> None:
    """Has the steps of `model` take elements of `training` and `evaluation`.

    Losses count by the replica's share of the batch: those that the model was compiled with, its
    regularisation losses, and what it adds by `add_loss`. What a model's own `train_step` computes without
    `compiled_loss` is left as it is.
    """
    _install()
    model.train_step = _taking(training, model.train_step)
    if evaluation is not None:
        model.test_step = _taking(evaluation, model.test_step)
    if has_keras_steps(model):
        model.compute_loss = _compute_loss(model, model.compute_loss)
        model.compute_metrics = _compute_metrics(model.compute_metrics)


def _taking(dataset: Distributed, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def taking(element: Any) -> Any:
        batch, share = dataset.parts(element)
        with _of(share):
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
        # Of a replica without an example one is taken, and counts nothing: a mean of none would be no number.
        return compute(*counted((x, y, y_pred, sample_weight), _share(), least=1))

    return compute_loss


def _weighed(update: Callable[..., Any]) -> Callable[..., Any]:
    """A mean's `update_state` that leaves the example out which does not count."""

    def update_state(values: Any, sample_weight: Any) -> Any:
        share = _share()
        if share is not None:
            sample_weight = tf.cast(share.examples, sample_weight.dtype)
        return update(values, sample_weight=sample_weight)

    return update_state


def _compute_metrics(compute: Callable[..., Any]) -> Callable[..., Any]:
    def compute_metrics(x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Any:
        return compute(*counted((x, y, y_pred, sample_weight), _share()))

    return compute_metrics


@contextmanager
def _of(share: Share | None) -> Iterator[None]:
    _current.share = share
    try:
        yield
    finally:
        _current.share = None


def _share() -> Share | None:
    return getattr(_current, "share", None)


def _install() -> None:
    """Once: `compiled_loss` finds this function in its module when it is called."""
    from tf_keras.src.utils import losses_utils

    original = losses_utils.scale_loss_for_distribution
    if hasattr(original, "without_shares"):
        return

    def scale_loss_for_distribution(loss_value: Any) -> Any:
        share = _share()
        return original(loss_value) if share is None else loss_value * tf.cast(share.part, loss_value.dtype)

    scale_loss_for_distribution.without_shares = original  # type: ignore[attr-defined]
    losses_utils.scale_loss_for_distribution = scale_loss_for_distribution
