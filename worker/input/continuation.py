"""The training data of an elastic collective, whose generations go on where the one before has stopped."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from worker.checkpoints.model_directory import Position
from worker.context import Loop
from worker.contract import ElasticWorkers
from worker.failures import program_error
from worker.tf_compat import seeds
from worker.tf_compat.graphs import CACHE, SHUFFLE, transformations

_SEED = 87654321
"""What TensorFlow takes where none is set (random_seed.py). So operations that the program gives a seed have
the same order as elsewhere.
"""


@contextlib.contextmanager
def alike(loop: Loop) -> Iterator[None]:
    """Wraps a call of train_dataset(). In an elastic collective all tasks and all generations make the same
    random choices there, and so shuffle alike.
    """
    if loop.elastic is None:
        yield
        return
    own = seeds.global_seed()
    of_python, of_numpy = random.getstate(), np.random.get_state()
    random.seed(_SEED)
    np.random.seed(_SEED)
    tf.random.set_seed(_SEED if own is None else own)
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        tf.random.set_seed(own)


def continued(loop: Loop, dataset: Any, steps: int | None, position: Position) -> Any:
    """Returns the training data of `steps` steps in an epoch without an end, from the batch at `position` on.
    Outside of an elastic collective it returns `dataset`.

    Raises Failure for data of which the beginning cannot be left out.
    """
    if loop.elastic is None:
        return dataset
    if not isinstance(dataset, tf.data.Dataset) or steps is None:
        raise program_error(
            f"{loop.program.entrypoint}: with spec.worker.minReplicas train_dataset() must return a "
            f"tf.data.Dataset, not a {type(dataset).__name__}"
        )
    done = position.epochs * steps + position.steps
    if done and int(dataset.cardinality()) < 0 and loop.writes:
        loop.hooks.reporter.notice(
            f"{loop.program.entrypoint}: the number of batches in train_dataset() is not known, so all "
            f"{done} that are done are read again, and left out; leave .repeat() out, or add .apply("
            "tf.data.experimental.assert_cardinality(NUMBER))"
        )
    return from_batch(dataset, done)


def from_batch(dataset: Any, done: int) -> Any:
    """Returns `dataset`, one pass after the other without an end, from the batch after `done` ones on.
    What is shuffled has the same order as if they had been read.
    """
    size = int(dataset.cardinality())
    if size <= 0:
        return dataset.repeat().skip(done)
    passes, batches = divmod(done, size)
    return _passes_over(dataset, passes).concatenate(dataset.skip(batches)).concatenate(dataset.repeat())


def _passes_over(dataset: Any, count: int) -> Any:
    """Returns an empty dataset, after which `dataset` has the order that it has after `count` passes.

    Each iteration of a shuffled dataset has the next order. For that it need not be read, unless there are
    several shuffles: each begins when the first element is asked of it.
    """
    found = transformations(dataset)
    shuffles, before = found.count(SHUFFLE), dataset.take(0)
    if count and shuffles and CACHE in found:
        # Only the first pass shuffles what precedes the cache, and only a whole one fills the cache.
        before, count = dataset.filter(lambda *_: False), count - 1

    def begun(_: Any) -> Any:
        if shuffles > 1:
            return dataset.take(1).filter(lambda *_: False)
        return tf.data.Dataset.choose_from_datasets([dataset], tf.data.Dataset.range(0))

    return before.concatenate(tf.data.Dataset.range(count).flat_map(begun)) if shuffles else before


def check_size(loop: Loop) -> None:
    """Raises Failure where a replica of an elastic collective may get no example of a batch."""
    most = _replicas(loop, loop.elastic.max) if loop.elastic is not None else 0
    if most > loop.parameters.global_batch_size:
        raise program_error(
            f"spec.program.parameters.globalBatchSize: {loop.parameters.global_batch_size} examples cannot "
            f"be shared by {most} replicas, which there may be (spec.worker.maxReplicas): give {most} or more"
        )


def check_parts(loop: Loop) -> None:
    """Raises Failure where the parts of a batch may differ, for a step of the model's own: it computes the
    mean of its part, and TensorFlow that of the parts, in which an example of a smaller one weighs more.
    """
    if loop.elastic is None:
        return
    size = loop.parameters.global_batch_size
    counts = [_replicas(loop, workers) for workers in _possible(loop.elastic)]
    uneven = next((count for count in counts if size % count), None)
    if uneven is not None:
        raise program_error(
            f"spec.program.parameters.globalBatchSize: {size} cannot be divided by {uneven} replicas, which "
            "there may be (spec.worker.minReplicas), and the model's own train_step() needs equal parts: "
            f"give a multiple of {int(np.lcm.reduce(counts))}, other numbers of workers, or a "
            "train_step() of the program's, which gets global_batch_size"
        )


def _possible(elastic: ElasticWorkers) -> range:
    return range(elastic.min, elastic.max + 1)


def _replicas(loop: Loop, workers: int) -> int:
    """Returns the number of replicas with the chief and so many workers."""
    return (workers + 1) * int(loop.strategy.num_replicas_in_sync) // loop.workers
