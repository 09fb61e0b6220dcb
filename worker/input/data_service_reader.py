"""The training data by the run's data service (`spec.dataService`): data workers carry out train_dataset().

What a data worker returns are batches of the examples that it was given, and the last ones of a pass are
smaller, one for each data worker. So the reader joins them to batches of the program's size: a pass through
the data has the batches, and the number of them, that it has without the service. In a ParameterServer run,
where each worker takes the next batch, the data workers themselves join what they have, across passes.

Under MultiWorkerMirrored the first task reads the batches, cuts each into the replicas' parts, and hands them
out by a service of its own with coordinated reads: each task then has its parts of the same batch in the same
step.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from worker.collective import kv_store, peer_connections
from worker.context import Loop
from worker.contract.run_config import DataService
from worker.data_adapters import fit_data
from worker.failures import place, program_error
from worker.input import batch_division, batch_size
from worker.input.in_process_service import Service, coordinated
from worker.input.pass_reader import PassProgress, PassReader
from worker.tf_compat import graphs
from worker.tf_compat.dataset_parts import DatasetParts, divided
from worker.tf_compat.strategies import uses_coordinator

_PYTHON = ("EagerPyFunc", "PyFunc", "PyFuncStateless")
_READY_KEY = "data-service"
_LEAST_AHEAD = 2
_PARTS_PER_WORKER = 8
Result = TypeVar("Result")


class ServedData:
    """The training dataset of `loop`'s program, registered with the data service. `element_spec` is that of
    the dataset. With `one_pass` it is read once, to count it. `begun` is how far an earlier attempt was.
    """

    def __init__(
        self,
        loop: Loop,
        service: DataService,
        dataset: Any,
        one_pass: bool = False,
        begun: PassProgress | None = None,
    ) -> None:
        self._loop = loop
        self._service = service
        self._target = f"grpc://{service.dispatcher}"
        self._size = (
            batch_size.batch_size(dataset) if batch_division.can_be_joined(dataset.element_spec) else None
        )
        self.element_spec = dataset.element_spec
        self._job = f"train-{uuid.uuid4().hex}"
        loop.hooks.enter("registering train_dataset() with the data service")
        self._coordinated = uses_coordinator(loop.strategy) and not one_pass
        parts = _registering(loop, lambda: divided(dataset)) if service.sharding == "DYNAMIC" else None
        count = _count(loop, service, parts) if parts is not None else 0
        self.passes: PassReader | None = None
        """Reads by parts, where this task reads alone, and the data can be divided."""
        if parts is not None and not self._coordinated:
            self.passes = self._reader(parts, count, begun or PassProgress(0, np.zeros([count], np.int64)))
            return
        if parts is not None:
            dataset = _endless(parts, count)
        elif self._coordinated:
            dataset = dataset.repeat()
        if self._coordinated:
            dataset = self._joined(dataset)
        self._id = _registering(loop, lambda: registered(self._target, dataset).numpy().decode())

    def _reader(self, parts: DatasetParts, count: int, begun: PassProgress) -> PassReader:
        join = None if self._size is None else self._joined
        return _registering(
            self._loop,
            lambda: PassReader(
                parts, count, begun, self._job, partial(registered, self._target), self._given, join
            ),
        )

    def read(self, endless: bool = True) -> Any:
        """Returns the dataset as this task reads it by itself: one pass, or with `endless` one after another.
        In a ParameterServer run all workers that call it share the elements, if the file says so.
        """
        if self.passes is not None:
            return self.passes.passes() if endless else self.passes.one_pass()
        if self._coordinated and self._service.shared:
            # What a worker of a coordinator has asked for, it keeps for itself, into the next epoch.
            return self._of(self._job, max(_LEAST_AHEAD, len(self._service.workers)))
        if self._coordinated:
            return self._of_new_jobs()
        if endless:
            return self._joined(self._of(self._job)).repeat()
        return self._joined(self._of_new_jobs())

    def _of(self, job: Any, most: int | None = None) -> Any:
        """Returns the elements of the job of this name. Who reads it anew finds only passes that are over."""
        return self._given(self._id, self.element_spec, job, most)

    def _given(self, identifier: Any, element: Any, job: Any, most: int | None = None) -> Any:
        policy = tf.data.experimental.service.ShardingPolicy[self._service.sharding]
        return graphs.data_service_dataset(policy, self._target, identifier, element, job, most)

    def _of_new_jobs(self) -> Any:
        """Returns a dataset of which each iteration is a job. TensorFlow makes one for each where it gets no
        name, but a reader of those waits for ever when a dispatcher is back (2.21).
        """

        def of_new_job(_: Any) -> Any:
            now = tf.strings.as_string(tf.timestamp(), precision=6)
            return self._of(tf.strings.join([self._job, now], "-"))

        return tf.data.Dataset.range(1).flat_map(of_new_job)

    def _joined(self, dataset: Any) -> Any:
        """Returns `dataset` with batches of the program's size."""
        if self._size is None:
            return dataset
        (first, *_) = tf.nest.flatten(self.element_spec)
        return dataset.rebatch(self._size, drop_remainder=first.shape[0] is not None)


def served(
    loop: Loop,
    service: DataService,
    dataset: Any,
    one_pass: bool = False,
    begun: PassProgress | None = None,
) -> ServedData:
    """Registers the training dataset. Raises Failure where it cannot be sent to data workers."""
    if not isinstance(dataset, tf.data.Dataset):
        raise program_error(
            f"{loop.program.entrypoint}: train_dataset() returned a {type(dataset).__name__}, which cannot "
            "be sent to the data workers of spec.dataService: return the tf.data.Dataset itself"
        )
    if fit_data.of(dataset) is not None:
        raise program_error(
            f"{loop.program.entrypoint}: train_dataset() returned arrays or batches of Python code, which "
            "cannot be sent to the data workers of spec.dataService: return a tf.data.Dataset, or remove "
            "spec.dataService"
        )
    if graphs.operation_types(dataset) & set(_PYTHON):
        raise _calls_python(loop, dataset)
    return ServedData(loop, service, dataset, one_pass, begun)


def parts_of_tasks(loop: Loop, parts: Any) -> Callable[[int], Any]:
    """Returns a function from a task's number to the dataset of its elements.

    `parts`, which has no end, is a dataset of all tasks' elements in turn: that of task 0, that of task 1,
    and so on. Only the first task reads it, and hands it out.
    """

    def lost(task: str) -> None:
        # A task that waits for its part of a batch is in no collective, and would wait for ever.
        loop.hooks.failed(tf.errors.UnavailableError(None, None, f"the connection of {task} has ended"))

    peer_connections.on_lost(lost)
    if loop.writes:
        server = Service(parts, loop.address or "localhost:0")
        loop.hooks.kept.append(server)
        kv_store.put(_READY_KEY, f"{server.address} {server.id} {uuid.uuid4().hex}")
    address, identifier, job = kv_store.get(_READY_KEY).split()
    return lambda task: coordinated(address, identifier, parts.element_spec, job, task, loop.workers)


def registered(target: str, dataset: Any) -> Any:
    """Registers `dataset` with the data service at `target`, also in a graph. Returns its identifier, a
    string tensor.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in a graph it is not sure which options the dataset has
        return tf.data.experimental.service.register_dataset(target, dataset)


def _registering(loop: Loop, register: Callable[[], Result]) -> Result:
    """Returns what `register` returns, which sends the training dataset."""
    try:
        return register()
    except (tf.errors.InvalidArgumentError, tf.errors.FailedPreconditionError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise program_error(
            f"{loop.program.entrypoint}: train_dataset() cannot be sent to the data workers of "
            f"spec.dataService: {reason}; make it of files, or of less than 2 GB in memory, and of "
            "TensorFlow's operations, or remove spec.dataService"
        ) from error


def _count(loop: Loop, service: DataService, parts: DatasetParts) -> int:
    """Returns how many parts a pass has. The more there are, the more evenly they end."""
    (first, *_) = tf.nest.flatten(parts.element_spec)
    drops = first.shape.rank and first.shape[0] is not None  # the remainder of each part
    if not parts.shares_work and len(service.workers) > 1:
        loop.notice(
            f"{loop.program.entrypoint}: each data worker carries out all of train_dataset() up to its last "
            "take(), skip(), window() or batch of batches, since these count from the beginning, and shares "
            "only what follows; put take() and skip() before map()"
        )
    return len(service.workers) * (_PARTS_PER_WORKER if parts.shares_work and not drops else 1)


def _endless(parts: DatasetParts, count: int) -> Any:
    """Returns the parts of one pass after the other."""
    number = tf.constant(count, tf.int64)
    return tf.data.Dataset.range(tf.int64.max).flat_map(
        lambda which: parts.part(which % number, number, which // number)
    )


def _calls_python(loop: Loop, dataset: Any) -> Exception:
    where = place(graphs.frames_of(dataset, _PYTHON), loop.program.roots)
    return program_error(
        f"{loop.program.entrypoint}: train_dataset() calls Python code (from_generator, py_function or "
        f"numpy_function){f' at {where}' if where else ''}, which cannot be sent to the data workers of "
        "spec.dataService: write it with TensorFlow operations, or remove spec.dataService"
    )
