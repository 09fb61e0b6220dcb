"""The random choices in a program's data: the same in all tasks that share batches, and in each attempt."""

from __future__ import annotations

import contextlib
import functools
import inspect
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from worker.context import Loop
from worker.tf_compat import seeds
from worker.tf_compat.replaced_methods import replaced
from worker.tf_compat.strategies import uses_coordinator, worker_number

_MAY_REORDER = ("batch", "interleave", "map")
"""The methods of a dataset that take `deterministic`."""


def train_dataset(loop: Loop) -> Any:
    """Returns the program's training data, made `alike`. Workers of a coordinator, and data workers that each
    give all of the data, have an order of their own each.
    """
    program, size = loop.program, loop.parameters.global_batch_size
    if uses_coordinator(loop.strategy) or (
        loop.data_service is not None and loop.data_service.sharding == "OFF"
    ):
        return program.train_dataset(size)
    policies = tf.data.experimental.AutoShardPolicy
    chosen = loop.strategy_options.get("autoShard")
    apart = chosen == policies.OFF.name or (loop.data_service is not None and not loop.data_service.shared)
    own_order = worker_number(loop.strategy)
    dataset = alike(program.train_dataset, size, order=own_order if apart else 0)
    if chosen is None and not apart and loop.workers > 1 and isinstance(dataset, tf.data.Dataset):
        own_policy = dataset.options().experimental_distribute.auto_shard_policy
        if policies(own_policy) == policies.OFF:
            return alike(program.train_dataset, size, order=own_order)
    return dataset


def alike(make: Callable[[int], Any], batch_size: int, order: int = 0) -> Any:
    """Returns the data that a program's method makes, with the same random choices in all tasks and all
    attempts that give the same `order`. So all shuffle alike. What may give its elements in any order gives
    them in one.
    """
    global_seed = seeds.global_seed()
    # So operations that the program gives a seed have the same order as elsewhere.
    seed = (seeds.UNSET if global_seed is None else global_seed) + order
    of_python, of_numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        with seeds.seeded(seed), in_order():
            dataset = make(batch_size)
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
    if not isinstance(dataset, tf.data.Dataset) or dataset.options().deterministic is not False:
        return dataset
    options = tf.data.Options()
    options.deterministic = True
    return dataset.with_options(options)


@contextlib.contextmanager
def in_order() -> Iterator[None]:
    """Has `deterministic=False` no effect in the block. Options of the whole dataset cannot overrule it."""
    methods = {name: _ordered(getattr(tf.data.Dataset, name)) for name in _MAY_REORDER}
    with replaced(tf.data.Dataset, **methods):
        yield


def _ordered(method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)

    @functools.wraps(method)  # a script may look at what a dataset has
    def transformed(*arguments: Any, **named: Any) -> Any:
        bound = signature.bind(*arguments, **named)
        if bound.arguments.get("deterministic") is False:
            bound.arguments["deterministic"] = None
        return method(*bound.args, **bound.kwargs)

    return transformed
