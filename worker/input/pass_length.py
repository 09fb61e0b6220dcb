"""Counts the batches of a pass through the training data, where its transformations do not tell.

It reads them, but does not carry out the maps behind the last transformation that may change the number.
"""

from __future__ import annotations

import concurrent.futures
import time
from typing import Any

import tensorflow as tf

from worker.collective import kv_store
from worker.context import Loop
from worker.input import data_service_reader
from worker.input.dataset_transfer import copied
from worker.input.seeding import train_dataset
from worker.tf_compat.graphs import SHUFFLE, Packed, packed, shuffles_of, transformations
from worker.tf_compat.strategies import worker_count

_CHUNK = 32
_KEY = "batches-of-a-pass"
_SECONDS = 1.0
_PATIENCE_SECONDS = 20.0


def count(loop: Loop, dataset: Any, most: int | None = None) -> int:
    """Returns the number of batches in a pass through the training `dataset`, of which it reads `most` at
    most. In a collective the first task counts for all: each must take the same number of steps.
    """
    if worker_count(loop.strategy) == 1:
        return _count(loop, dataset, most)
    key = kv_store.numbered(_KEY)
    if loop.writes:
        total = _count(loop, dataset, most)
        kv_store.put(key, str(total))
        return total
    loop.hooks.enter("waiting for the first task to count the batches of train_dataset()")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        found_there = pool.submit(kv_store.get, key)
        while not concurrent.futures.wait([found_there], _SECONDS).done:
            loop.hooks.alive()  # the first task's supervisor sees whether that one reads
        return int(found_there.result())


def _count(loop: Loop, dataset: Any, most: int | None) -> int:
    loop.hooks.enter("counting the batches of train_dataset()")
    if loop.data_service is not None:
        # Only the data workers need to have the files.
        one_pass = data_service_reader.served(loop, loop.data_service, dataset, one_pass=True)
        return elements(one_pass.read(endless=False), loop, most)
    if SHUFFLE in transformations(packed(dataset, [SHUFFLE]).source):
        # The next iteration of a shuffled dataset has another order, which counting must not use up.
        dataset = made_again(loop, dataset)
    return batches(packed(dataset, [SHUFFLE]), most, loop)


def made_again(loop: Loop, dataset: Any) -> Any:
    """Returns the training `dataset` anew, to be read without using up an order of what is shuffled."""
    program = loop.program
    if program.is_of_one_process:  # what a script has given is there once
        return copied(dataset)
    again = train_dataset(loop)
    program.datasets.pop()
    kept = set(map(id, shuffles_of(dataset))) & set(map(id, shuffles_of(again)))
    return copied(dataset) if kept else again


def batches(of: Packed, most: int | None, loop: Loop) -> int:
    """Returns the number of batches, at most `most`, into which a pass through `of` is packed."""
    total = elements(of.source, loop, None if most is None else most * of.size)
    return total // of.size if of.drops else -(-total // of.size)


def elements(dataset: Any, loop: Loop, most: int | None = None) -> int:
    """Returns the number of elements of `dataset`, of which it reads `most` at most."""
    size = int(dataset.cardinality())
    if size >= 0:
        return size if most is None else min(size, most)
    total, notice_at = 0, time.monotonic() + _PATIENCE_SECONDS
    read = dataset if most is None else dataset.take(most)
    for chunk in read.map(lambda *_: tf.constant(0, tf.int8)).batch(_CHUNK):
        total += int(chunk.shape[0])
        loop.hooks.alive()
        if time.monotonic() > notice_at and loop.parameters.steps_per_epoch is None:
            notice_at = float("inf")
            loop.notice(
                f"{loop.program.entrypoint}: train_dataset() has not ended after {total:,} elements, which "
                "are counted, since an epoch is a pass: where it has no end, and to do without the count, "
                "give spec.program.parameters.stepsPerEpoch"
            )
    return total


def examples(dataset: Any, loop: Loop) -> int:
    """Returns the number of examples in the batches of `dataset`."""
    from worker.input.batch_division import batch_count

    def rows(*batch: Any) -> Any:
        return tf.cast(batch_count(batch[0] if len(batch) == 1 else batch), tf.int64)

    total = 0
    for chunk in dataset.map(rows).batch(_CHUNK):
        total += int(tf.reduce_sum(chunk))
        loop.hooks.alive()
    return total
