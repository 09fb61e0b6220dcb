"""The random choices in train_dataset(): the same in all tasks that share batches, and in each attempt."""

from __future__ import annotations

import contextlib
import inspect
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from worker.context import Loop
from worker.tf_compat import seeds
from worker.tf_compat.strategies import uses_coordinator, worker_number

_MAY_REORDER = ("batch", "interleave", "map")
"""The methods of a dataset that take `deterministic`."""


def train_dataset(loop: Loop) -> Any:
    """Returns the program's training data, made by `alike`."""
    policies = tf.data.experimental.AutoShardPolicy
    chosen = loop.strategy_options.get("autoShard")
    apart = chosen == policies.OFF.name or (loop.data_service is not None and not loop.data_service.shared)
    with alike(loop, apart=apart):
        dataset = loop.program.train_dataset(loop.parameters.global_batch_size)
    if chosen is None and not apart and loop.workers > 1 and isinstance(dataset, tf.data.Dataset):
        own = dataset.options().experimental_distribute.auto_shard_policy
        if policies(own) == policies.OFF:
            with alike(loop, apart=True):
                dataset = loop.program.train_dataset(loop.parameters.global_batch_size)
    if _each_reads_alone(loop) or not isinstance(dataset, tf.data.Dataset):
        return dataset
    if dataset.options().deterministic is False:
        options = tf.data.Options()
        options.deterministic = True
        dataset = dataset.with_options(options)
    return dataset


def _each_reads_alone(loop: Loop) -> bool:
    """Returns whether each reader is to have an order of its own: the workers of a coordinator, and data
    workers that each give all of the data.
    """
    service = loop.data_service
    return uses_coordinator(loop.strategy) or (service is not None and service.sharding == "OFF")


@contextlib.contextmanager
def alike(loop: Loop, *, apart: bool = False) -> Iterator[None]:
    """Wraps a call of train_dataset(). All tasks and all attempts make the same random choices there, and so
    shuffle alike; with `apart`, each task makes choices of its own, the same in all attempts. What may give
    its elements in any order gives them in one.

    It does nothing where each reader is to have an order of its own.
    """
    if _each_reads_alone(loop):
        yield
        return
    own = seeds.global_seed()
    # So operations that the program gives a seed have the same order as elsewhere.
    seed = (seeds.UNSET if own is None else own) + (worker_number(loop.strategy) if apart else 0)
    of_python, of_numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        with seeds.seeded(seed), _in_order():
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


@contextlib.contextmanager
def _in_order() -> Iterator[None]:
    """Has `deterministic=False` no effect in the block. Options of the whole dataset cannot overrule it."""
    methods = {name: getattr(tf.data.Dataset, name) for name in _MAY_REORDER}
    try:
        for name, method in methods.items():
            setattr(tf.data.Dataset, name, _ordered(method))
        yield
    finally:
        for name, method in methods.items():
            setattr(tf.data.Dataset, name, method)


def _ordered(method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)

    def transformed(*arguments: Any, **named: Any) -> Any:
        bound = signature.bind(*arguments, **named)
        if bound.arguments.get("deterministic") is False:
            bound.arguments["deterministic"] = None
        return method(*bound.args, **bound.kwargs)

    return transformed
