"""The random choices in train_dataset(): the same in all tasks that share batches, and in each attempt."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from worker.context import Loop
from worker.tf_compat import seeds
from worker.tf_compat.strategies import uses_coordinator, worker_number

_SEED = 87654321
"""What TensorFlow takes where none is set (random_seed.py). So operations that the program gives a seed have
the same order as elsewhere.
"""


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
                return loop.program.train_dataset(loop.parameters.global_batch_size)
    return dataset


@contextlib.contextmanager
def alike(loop: Loop, *, apart: bool = False) -> Iterator[None]:
    """Wraps a call of train_dataset(). All tasks and all attempts make the same random choices there, and so
    shuffle alike; with `apart`, each task makes choices of its own, the same in all attempts.

    It does nothing where each reader is to have an order of its own: for the workers of a coordinator, and
    for data workers that each give all of the data.
    """
    service = loop.data_service
    if uses_coordinator(loop.strategy) or (service is not None and service.sharding == "OFF"):
        yield
        return
    own = seeds.global_seed()
    seed = (_SEED if own is None else own) + (worker_number(loop.strategy) if apart else 0)
    of_python, of_numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        with seeds.seeded(seed):
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
