"""The data that the chief of a ParameterServer run reads, and sends to the workers batch by batch: what only
Python can read, and files that only the chief has, such as those that the program has downloaded or written.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from worker.checkpoints.position import Position
from worker.context import Loop
from worker.failures import program_error
from worker.input import continuation
from worker.parameter_server.executions import Executions
from worker.tf_compat.graphs import first_files, operation_types
from worker.tf_compat.strategies import uses_coordinator

_OF_PYTHON = (
    "is read by Python (arrays, a PyDataset, a generator or Python code in a tf.data.Dataset), so the chief "
    "reads it and sends each batch to a worker, one step at a time: its network and one of its cores bound "
    "the speed. The workers read a tf.data.Dataset of files and TensorFlow's operations themselves"
)
_OF_FILES = (
    "reads {}, which the chief has and a worker has not, so the chief reads it and sends each batch to a "
    "worker, one step at a time: its network and one of its cores bound the speed. The workers read "
    "themselves what is at the same path in each of them, as in the image, on a volume that all mount, or at "
    "a URL"
)


def calls_python(dataset: Any) -> bool:
    """Returns whether reading `dataset` runs Python code, which no other task can.

    TensorFlow 2.21 calls tf.numpy_function and from_generator of a worker's dataset back on the chief. That
    hangs at times, because the chief may hold Python's lock while it waits for that worker. tf.py_function
    aborts the workers' processes ("Check failed: ParseFullName" in DatasetToGraph).
    """
    return bool(operation_types(dataset) & {"EagerPyFunc", "PyFunc", "PyFuncStateless"})


def check(loop: Loop, dataset: Any) -> None:
    """Raises Failure where the chief has to read the training `dataset`, and cannot send it."""
    by_chief = uses_coordinator(loop.strategy) and loop.data_service is None and calls_python(dataset)
    if by_chief and loop.strategy.num_replicas_in_sync > 1:
        raise program_error(
            f"{loop.program.entrypoint}: train_dataset() is read by Python, and so by the chief, which can "
            "send batches to workers of one device each: give a tf.data.Dataset of TensorFlow's operations, "
            "or another spec.strategy"
        )


def training_data(loop: Loop, dataset: Any, steps: int, position: Position, executions: Executions) -> Any:
    """Returns the training data, from the batch at `position` on and without an end, where the chief has to
    read them; None where the workers do.
    """
    if not isinstance(dataset, tf.data.Dataset) or loop.data_service is not None:
        return None
    reason = why(loop, dataset, executions)
    if reason is None or loop.strategy.num_replicas_in_sync > 1:
        return None
    loop.notice(f"{loop.program.entrypoint}: train_dataset() {reason}")
    left = continuation.continued(loop, dataset, steps, position)
    return (left.repeat() if left is dataset else left).prefetch(tf.data.AUTOTUNE)


def why(loop: Loop, dataset: Any, executions: Executions) -> str | None:
    """Returns why the chief has to read `dataset`, as what follows its name; None where workers can."""
    if calls_python(dataset):
        return _OF_PYTHON
    here = [name for name in first_files(dataset) if "://" not in name]
    names = [name for name in here if tf.io.matching_files(name).shape[0]]
    if not names:
        return None
    loop.hooks.enter("asking a worker for the files of the data")
    remote_values: list[Any] = []
    executions.schedule(tf.function(_count), (tf.constant(names),), report=remote_values.append)
    executions.join()
    counts = remote_values[0].get()
    return next((_OF_FILES.format(name) for name, count in zip(names, counts) if not count), None)


def _count(names: Any) -> Any:
    """Returns how many files of each of the `names` this task has."""
    return tf.map_fn(lambda name: tf.size(tf.io.matching_files(name)), names, fn_output_signature=tf.int32)
