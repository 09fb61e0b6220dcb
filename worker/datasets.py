"""The data: how it is shared out, how many steps are in it, and what may not be."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from worker.failures import Failure, program_error
from worker.loops import Loop
from worker.program import LoadedProgram
from worker.traces import file_count, operation_types

_AUTO_SHARD = "spec.strategyOptions.autoShard"


def training_dataset(loop: Loop) -> tuple[Any, int | None]:
    """What `train_dataset` gives, repeated, prefetched, and to be shared out as the strategy's options say;
    and how many steps an epoch has, None where only the end of the data will tell.

    Raises Failure where the program or its parameters are at fault.
    """
    check_batch_size(loop)
    loop.enter("running train_dataset()")
    dataset = loop.program.train_dataset(loop.parameters.global_batch_size)
    if not isinstance(dataset, tf.data.Dataset):
        return dataset, _steps_of_creator(loop)
    steps = steps_per_epoch(loop, dataset)
    if loop.strategy._should_use_with_coordinator:
        check_for_python(loop.program, dataset)
    if steps is not None and dataset.cardinality() != tf.data.INFINITE_CARDINALITY:
        dataset = dataset.repeat()
    return _shared(dataset, _policy(loop, dataset)).prefetch(tf.data.AUTOTUNE), steps


def evaluation_dataset(loop: Loop) -> Any:
    """What `evaluation_dataset` gives, to be visited once: its cardinality is known.

    Of a collective's workers each reads all of it and keeps its share, whatever `autoShard` says of the
    training data: by FILE, one with fewer samples would end before the others.
    """
    loop.enter("running evaluation_dataset()")
    dataset = loop.program.evaluation_dataset(loop.parameters.global_batch_size)
    size = int(dataset.cardinality())
    if size == tf.data.INFINITE_CARDINALITY:
        raise program_error(f"{loop.program.entrypoint}: evaluation_dataset() must be finite")
    if size == tf.data.UNKNOWN_CARDINALITY:
        # Executions of several steps need it.
        size = int(dataset.reduce(tf.constant(0, tf.int64), lambda count, *_: count + 1))
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(size))
    if size == 0:
        batch_size = loop.parameters.global_batch_size
        raise program_error(f"{loop.program.entrypoint}: evaluation_dataset({batch_size}) is empty")
    return _shared(dataset, "DATA").prefetch(tf.data.AUTOTUNE)


def check_batch_size(loop: Loop) -> None:
    """Raises Failure where the replicas cannot have equal shares of a batch."""
    size, replicas = loop.parameters.global_batch_size, loop.strategy.num_replicas_in_sync
    if size % replicas:
        lower = size - size % replicas
        choices = [str(choice) for choice in (lower, lower + replicas) if choice]
        raise program_error(
            f"spec.program.parameters.globalBatchSize: {size} cannot be divided by {replicas} replicas; "
            f"use {' or '.join(choices)}"
        )


def steps_per_epoch(loop: Loop, dataset: Any) -> int | None:
    """As the parameters say, or as many batches as the dataset has; None where only its end will tell.

    Raises Failure that names `stepsPerEpoch` where it cannot be known and must be.
    """
    given = loop.parameters.steps_per_epoch
    if given is not None:
        return given
    size = int(dataset.cardinality())
    if size > 0:
        return size
    if size == 0:
        raise _empty(loop)
    why = "is infinite" if size == tf.data.INFINITE_CARDINALITY else "has no size that is known"
    several = loop.strategy._should_use_with_coordinator or loop.workers > 1
    packed = (loop.parameters.steps_per_execution or 1) > 1
    if size == tf.data.INFINITE_CARDINALITY or several or packed:
        raise program_error(
            f"spec.program.parameters.stepsPerEpoch: needed, because the training dataset {why}"
        )
    return None


def check_for_python(program: LoadedProgram, dataset: Any) -> None:
    """Refuses Python code in a dataset that workers run.

    TensorFlow 2.21 calls tf.numpy_function and from_generator back on the chief, for every worker, which
    hangs now and then: the chief may hold Python's lock while it waits for that worker. On tf.py_function the
    workers' processes are aborted ("Check failed: ParseFullName" in DatasetToGraph).
    """
    if operation_types(dataset) & {"EagerPyFunc", "PyFunc", "PyFuncStateless"}:
        raise program_error(
            f"{program.entrypoint}: train_dataset() calls Python code (from_generator, py_function or "
            "numpy_function), which the workers of a ParameterServer run cannot; write it with TensorFlow "
            "operations, or use another spec.strategy"
        )


def ended_early(loop: Loop, epoch: int, done: int, steps: int) -> Failure:
    """The data was over after about `done` of the `steps` of `epoch` (from 1), although it is repeated."""
    if epoch == 1 and done == 0:
        return _empty(loop)
    return program_error(
        f"{loop.program.entrypoint}: train_dataset({loop.parameters.global_batch_size}) ended before the "
        f"{steps} steps of epoch {epoch} were done, and gives nothing when it is read again; make it from a "
        "source that can be read twice, end it with .repeat(), or lower spec.program.parameters.stepsPerEpoch"
    )


@contextlib.contextmanager
def reading(loop: Loop) -> Iterator[None]:
    """Around `Model.fit`: makes one message of what it says when not a step could be done."""
    try:
        yield
    except ValueError as error:
        if "Unexpected result of `train_function`" not in str(error):
            raise
        raise _empty(loop) from error


def _policy(loop: Loop, dataset: Any) -> str | None:
    """How the training data is shared out over the tasks of a collective, None where there is one task.

    TensorFlow's AUTO is FILE for whatever reads files, and fails where they are fewer than the workers.
    """
    policies = tf.data.experimental.AutoShardPolicy
    own = policies(dataset.options().experimental_distribute.auto_shard_policy)
    chosen = policies[loop.strategy_options.get("autoShard", own.name)]
    if loop.workers == 1 or loop.strategy._should_use_with_coordinator:
        return None
    files = file_count(dataset)
    if chosen == policies.AUTO and files is not None and files < loop.workers:
        return "DATA"
    if chosen == policies.FILE and (files is None or files < loop.workers):
        read = "none" if files is None else files
        raise program_error(
            f"{_AUTO_SHARD}: FILE needs a file for each of the {loop.workers} tasks that train, and "
            f"train_dataset() reads {read}; write the data into more files, or use DATA or OFF"
        )
    return str(chosen.name)


def _shared(dataset: Any, policy: str | None) -> Any:
    """Only the strategies with several tasks that each read the data heed it."""
    if policy is None:
        return dataset
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[policy]
    return dataset.with_options(options)


def _steps_of_creator(loop: Loop) -> int:
    """A `DatasetCreator` makes its datasets on the workers, which repeat and shard them as it says."""
    if loop.parameters.steps_per_epoch is None:
        raise program_error(
            "spec.program.parameters.stepsPerEpoch: needed, because train_dataset() returns a DatasetCreator"
        )
    if loop.strategy._should_use_with_coordinator:
        check_for_python(loop.program, loop.program.datasets[-1])
    return loop.parameters.steps_per_epoch


def _empty(loop: Loop) -> Failure:
    batch_size = loop.parameters.global_batch_size
    return program_error(f"{loop.program.entrypoint}: train_dataset({batch_size}) is empty")
