"""The private parts of TensorFlow's strategies."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf


def uses_coordinator(strategy: Any) -> bool:
    """Returns whether steps are scheduled on workers, as under ParameterServerStrategy."""
    return bool(strategy._should_use_with_coordinator)


def replicas_share_variables(strategy: Any) -> bool:
    """Returns whether the replicas of `strategy` have each variable once, as under CentralStorageStrategy."""
    return isinstance(strategy, tf.distribute.experimental.CentralStorageStrategy)


def worker_count(strategy: Any) -> int:
    """Returns how many tasks take every step together; 1 except for MultiWorkerMirroredStrategy."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 1
    return int(strategy.extended._num_workers)


def worker_number(strategy: Any) -> int:
    """Returns the number, from 0, of this task among those that take every step together."""
    return int(strategy.extended._id_in_cluster) if worker_count(strategy) > 1 else 0


def ps_count(strategy: Any) -> int:
    """Returns how many parameter servers hold the variables; 0 except for ParameterServerStrategy."""
    if not isinstance(strategy, tf.distribute.ParameterServerStrategy):
        return 0
    return int(strategy.extended._num_ps)


@contextlib.contextmanager
def without_partitioner(strategy: Any) -> Iterator[None]:
    """Has a ParameterServerStrategy make whole variables in the block."""
    extended = strategy.extended
    partitioner = extended._variable_partitioner
    extended._variable_partitioner = None
    try:
        yield
    finally:
        extended._variable_partitioner = partitioner


@contextlib.contextmanager
def with_local_cpus(count: int) -> Iterator[None]:
    """Has a MultiWorkerMirroredStrategy that is made in the block use `count` logical CPUs, where that is
    above 1.

    The strategy uses all GPUs of a task, but only one CPU, and has no parameter for it.
    """
    from tensorflow.python.distribute import collective_all_reduce_strategy

    extended = collective_all_reduce_strategy.CollectiveAllReduceExtended
    original = extended._initialize_local_devices

    def cpus(_self: Any, _resolver: Any, worker_device: str) -> tuple[tuple[str, ...], str]:
        return tuple(f"{worker_device}/device:CPU:{index}" for index in range(count)), "CPU"

    if count > 1:
        extended._initialize_local_devices = cpus
    try:
        yield
    finally:
        extended._initialize_local_devices = original


def read_as_numbers() -> None:
    """Has a variable that is spread over replicas be a number and an array in Python, as any other is:
    TensorFlow (2.21) leaves that out, and many callbacks have `int(self.model.optimizer.iterations)`.
    """
    from tensorflow.python.distribute.values import DistributedVariable

    DistributedVariable.__int__ = lambda self: int(self.numpy())
    DistributedVariable.__float__ = lambda self: float(self.numpy())
    DistributedVariable.__array__ = lambda self, dtype=None: np.asarray(self.numpy(), dtype)


@contextlib.contextmanager
def scope(strategy: Any) -> Iterator[None]:
    """Enters the scope of `strategy`, in which a variable of texts, such as the names in an index of
    candidates, is each task's own where there are several: a collective cannot send texts.
    """
    with strategy.scope():
        if worker_count(strategy) == 1:
            yield
            return
        with tf.variable_creator_scope(_create):
            yield


def _create(create: Callable[..., Any], **options: Any) -> Any:
    from tensorflow.python.ops.resource_variable_ops import ResourceVariable

    value, dtype = options.get("initial_value"), options.get("dtype")
    if dtype is None and not (value is None or callable(value)):
        dtype = tf.convert_to_tensor(value).dtype
    # What is loaded from a SavedModel gets its value later.
    if value is None or dtype is None or tf.as_dtype(dtype) != tf.string:
        return create(**options)
    return ResourceVariable(value, trainable=False, dtype=tf.string, name=options.get("name"))
