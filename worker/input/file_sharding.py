"""Computes how much of the data an epoch leaves out when whole files are sharded and the files have unequal
sizes.

Every task of a collective takes equally many examples in a step. A task whose files have more of the data
reads only some of it in an epoch, and the other tasks read theirs again. TensorFlow does not report it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from worker.context import Loop
from worker.failures import program_error
from worker.tf_compat.graphs import file_count, file_names
from worker.tf_compat.strategies import uses_coordinator

_AUTO_SHARD = "spec.strategyOptions.autoShard"
_MOST_FILES = 1000
_MOST_REMOTE_FILES = 100
"""The size of each file behind a URL takes a request: about 50 ms."""
_LEAST = 0.02
"""Fraction of the data below which no notice is given."""
_NAMED = 8


def policy(loop: Loop, dataset: Any) -> str | None:
    """Returns the policy by which the tasks of a collective share the training data, None where there is one
    task.

    TensorFlow's AUTO becomes FILE for a dataset that reads files, and fails where there are fewer files than
    workers. A script's batches would not be those of one process by it.
    """
    policies = tf.data.experimental.AutoShardPolicy
    own_policy = policies(dataset.options().experimental_distribute.auto_shard_policy)
    chosen = policies[loop.strategy_options.get("autoShard", own_policy.name)]
    if loop.workers == 1 or uses_coordinator(loop.strategy):
        return None
    if loop.elastic is not None:
        if own_policy not in (policies.AUTO, policies.DATA):
            raise program_error(
                f"{loop.program.entrypoint}: train_dataset() sets tf.data.Options' auto_shard_policy to "
                f"{own_policy.name}, and with spec.worker.minReplicas a worker may leave within an epoch: "
                "use DATA"
            )
        return "DATA"
    files = file_count(dataset)
    whole_files = files is not None and files >= loop.workers
    if chosen == policies.AUTO and (loop.program.is_of_one_process or not whole_files):
        return "DATA"
    if chosen == policies.FILE and not whole_files:
        read = "none" if files is None else files
        raise program_error(
            f"{_AUTO_SHARD}: FILE needs a file for each of the {loop.workers} tasks that train, and "
            f"train_dataset() reads {read}; write the data into more files, or use DATA or OFF"
        )
    return str(chosen.name)


def check_whole(loop: Loop) -> None:
    """Raises Failure where the file asks for another policy than DATA for data that all tasks have."""
    chosen = loop.strategy_options.get("autoShard")
    if chosen in ("FILE", "OFF"):
        raise program_error(
            f"{_AUTO_SHARD}: {chosen} is for a tf.data.Dataset, and train_dataset() returned arrays or "
            "batches of Python code, of which each task takes its part of each batch: leave it out"
        )


def notice_unequal_files(loop: Loop, dataset: Any) -> None:
    """Emits a notice in the first task of what an epoch leaves out and repeats, as far as the files' sizes
    tell.

    `dataset` is the training data, whose files TensorFlow shards one by one.
    """
    if not loop.writes:
        return
    try:
        sizes = _sizes(dataset)
    except tf.errors.OpError:
        return  # reading the files will raise the error
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
    loop.notice(
        f"{loop.program.entrypoint}: train_dataset() is shared out by files, and they are not equal: of "
        f"{len(sizes)} files the {loop.workers} tasks read {_listed(map(str, counts))}, "
        f"{_listed(f'{share:.0%}' for share in shares)} of the bytes. Each takes equally many examples, so "
        f"{epoch} leaves out about {left_out:.0%} of the data"
        f"{f' and reads {repeated:.0%} twice' if repeated >= _LEAST else ''}: {advice}"
    )


def unread(shares: Sequence[float], passes: float) -> tuple[float, float]:
    """Returns the fraction of the data that an epoch leaves out, and the fraction that it reads again.

    `shares` are the tasks' fractions of the data, which add up to 1. An epoch has `passes` times as many
    examples as the data.
    """
    each = passes / len(shares)
    left_out = sum(max(0.0, share - each) for share in shares)
    return left_out, sum(max(0.0, each - share) for share in shares)


def _sizes(dataset: Any) -> list[int]:
    """Returns the files' sizes in bytes, in the order of sharding. Returns nothing where that would take too
    long.
    """
    names = file_names(dataset, _MOST_FILES) or []
    if len(names) > _MOST_REMOTE_FILES and any("://" in name for name in names):
        return []
    return [int(tf.io.gfile.stat(name).length) for name in names]


def _listed(words: Any) -> str:
    all_words = list(words)
    more = len(all_words) - _NAMED
    return ", ".join(all_words[:_NAMED]) + (f" and so on for {more} more" if more > 0 else "")
