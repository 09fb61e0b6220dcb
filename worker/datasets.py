"""The training data: how many steps are in it, and what may not be."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from worker.failures import program_error
from worker.loops import Loop
from worker.program import LoadedProgram
from worker.traces import operation_types


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
        raise program_error(
            f"{loop.program.entrypoint}: train_dataset({loop.parameters.global_batch_size}) is empty"
        )
    if size == tf.data.INFINITE_CARDINALITY:
        raise program_error(
            "spec.program.parameters.stepsPerEpoch: needed, because the training dataset is infinite"
        )
    if loop.strategy._should_use_with_coordinator or loop.workers > 1:
        raise program_error(
            "spec.program.parameters.stepsPerEpoch: needed, because the size of the training dataset "
            "is not known"
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
