"""The private parts of TensorFlow's strategies."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from worker.tf_compat.graphs import is_of_variables
from worker.tf_compat.replaced_methods import replace

_APART = (tf.VariableAggregation.NONE, tf.VariableSynchronization.AUTO)
"""What a variable is made with where nothing is said on how replicas keep it."""
_ASSIGNMENTS = ("assign", "assign_add", "assign_sub")
_BY_ROWS = {"scatter_add": "assign_add", "scatter_sub": "assign_sub"}


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


def average_statistics(strategy: Any, of_replica: Callable[[Any, Any], Any]) -> None:
    """Has a variable that is not trained, such as a layer's moving mean, be the mean of what the replicas
    assign to it, where it was made without a word on that: in TensorFlow (2.21) each keeps its own, and that
    of the first is read. An optimizer's are left out, which all replicas assign alike.

    `of_replica` gets the variable and the tensor, or the rows, of a replica, and returns the tensor that is
    assigned or added instead.
    """
    from tensorflow.python.distribute.values import DistributedVariable

    original = strategy.extended._create_variable
    if strategy.num_replicas_in_sync == 1 or hasattr(original, "of_strategy"):
        return

    def create(next_creator: Callable[..., Any], **options: Any) -> Any:
        if (
            options.get("trainable") is not False
            or options.get("aggregation", _APART[0]) != _APART[0]
            or options.get("synchronization", _APART[1]) != _APART[1]
            or (dtype := _dtype(options)) is None
            or not dtype.is_floating
            or _is_called_by("keras.src.optimizers", "tf_keras.src.optimizers")
        ):
            return original(next_creator, **options)
        variable = original(next_creator, **{**options, "aggregation": tf.VariableAggregation.MEAN})
        replace(variable, **{name: assigning(variable, name) for name in (*_BY_ROWS, *_ASSIGNMENTS)})
        return variable

    def assigning(variable: Any, name: str) -> Callable[..., Any]:
        plain, assign = getattr(variable, name), getattr(variable, _BY_ROWS.get(name, name))

        def assigned(value: Any, *how: Any, **more: Any) -> Any:
            if tf.distribute.get_replica_context() is None or not tf.distribute.has_strategy():
                return plain(value, *how, **more)
            if isinstance(value, tf.IndexedSlices):
                return assign(of_replica(variable, value))
            value = tf.convert_to_tensor(value, variable.dtype)
            is_alike = tf.is_symbolic_tensor(value) and is_of_variables(value)
            if is_alike and isinstance(variable, DistributedVariable):
                # Each replica changes its own, without an exchange: also in a branch, where there is none.
                return getattr(variable._get_on_device_or_primary(), name)(value, *how, **more)
            return assign(of_replica(variable, value), *how, **more)

        return assigned

    create.of_strategy = original  # type: ignore[attr-defined]
    replace(strategy.extended, _create_variable=create)


def _is_called_by(*packages: str) -> bool:
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(packages):
            return True
        frame = frame.f_back
    return False


def _dtype(options: dict[str, Any]) -> Any:
    """Returns the type of a variable that is made with `options`; None where its value is to tell later."""
    value, dtype = options.get("initial_value"), options.get("dtype")
    if dtype is None and not (value is None or callable(value)):
        dtype = tf.convert_to_tensor(value).dtype
    return None if dtype is None else tf.as_dtype(dtype)


def _create(create: Callable[..., Any], **options: Any) -> Any:
    from tensorflow.python.ops.resource_variable_ops import ResourceVariable

    value = options.get("initial_value")
    # What is loaded from a SavedModel gets its value later.
    if value is None or _dtype(options) != tf.string:
        return create(**options)
    return ResourceVariable(value, trainable=False, dtype=tf.string, name=options.get("name"))
