"""What sharing the training data out by whole files leaves out of an epoch, where the files are not equal.

Every task of a collective takes as many examples in a step as the others. One that has more of the data in
its files than the others reads less of it in an epoch, and they read theirs again. TensorFlow says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from worker.context import Loop
from worker.tf_compat.graphs import file_names

_MOST_FILES = 1000
_MOST_REMOTE_FILES = 100
"""Behind a URL the size of each is a request: some 50 ms."""
_LEAST = 0.02
"""Of the data: less is not worth a sentence."""
_NAMED = 8


def notice_unequal_files(loop: Loop, dataset: Any) -> None:
    """Says, in the first task, what an epoch leaves out and repeats, where the files' sizes tell.

    `dataset` is the training data, whose files TensorFlow shares out one by one.
    """
    if not loop.writes:
        return
    try:
        sizes = _sizes(dataset)
    except tf.errors.OpError:
        return  # reading them will say why
    if not sizes or not sum(sizes):
        return
    shares = [sum(sizes[task :: loop.workers]) / sum(sizes) for task in range(loop.workers)]
    steps, whole = loop.parameters.steps_per_epoch, int(dataset.cardinality())
    passes = steps / whole if steps is not None and whole > 0 else 1.0
    left_out, repeated = unread(shares, passes)
    if min(left_out, max(shares) - min(shares)) < _LEAST:
        return
    counts = [len(sizes[task :: loop.workers]) for task in range(loop.workers)]
    known = steps is not None and whole > 0
    epoch = f"an epoch of {steps} steps" if known else "an epoch of as many examples as the files have"
    advice = (
        "use spec.strategyOptions.autoShard: DATA, or write files of one size, whose number is a multiple of "
        f"{loop.workers}"
    )
    loop.reporter.notice(
        f"{loop.program.entrypoint}: train_dataset() is shared out by files, and they are not equal: of "
        f"{len(sizes)} files the {loop.workers} tasks read {_listed(map(str, counts))}, "
        f"{_listed(f'{share:.0%}' for share in shares)} of the bytes. Each takes equally many examples, so "
        f"{epoch} leaves out about {left_out:.0%} of the data"
        f"{f' and reads {repeated:.0%} twice' if repeated >= _LEAST else ''}: {advice}"
    )


def unread(shares: Sequence[float], passes: float) -> tuple[float, float]:
    """What of the data is left out of an epoch, and what is read again in it, both as parts of the whole.

    `shares` are the tasks' parts of it, which add up to 1; an epoch has `passes` times as many examples as
    the data.
    """
    each = passes / len(shares)
    left_out = sum(max(0.0, share - each) for share in shares)
    return left_out, sum(max(0.0, each - share) for share in shares)


def _sizes(dataset: Any) -> list[int]:
    """In bytes, in the order in which the files are shared out; none where that would take long to tell."""
    names = file_names(dataset, _MOST_FILES) or []
    if len(names) > _MOST_REMOTE_FILES and any("://" in name for name in names):
        return []
    return [int(tf.io.gfile.stat(name).length) for name in names]


def _listed(words: Any) -> str:
    found = list(words)
    more = len(found) - _NAMED
    return ", ".join(found[:_NAMED]) + (f" and so on for {more} more" if more > 0 else "")
