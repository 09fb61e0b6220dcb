"""A ClusterCoordinator whose workers come and go one by one.

TensorFlow's own coordinator (2.16 to 2.21) waits until all workers of its cluster answer before it uses a
lost one again. Here the thread of each lost worker waits for that worker alone. A worker that has not come
yet is treated as a lost one: TensorFlow then makes its datasets, lookup tables and variables when it comes.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator
from typing import Any

import tensorflow as tf

from worker.tf_compat import connections

_WAKE_SECONDS = 60.0


class Absences:
    """The workers whose threads wait until the worker is in the cluster, by their numbers. It is
    thread-safe.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._workers: set[int] = set()
        self._queue: Any = None
        self._thread = threading.local()

    def workers(self) -> set[int]:
        """Returns the numbers of the absent workers."""
        with self._condition:
            return set(self._workers)

    def end(self, workers: Collection[int]) -> None:
        """Has the threads of `workers` go on: they make what each worker has of its own, and take steps."""
        with self._condition:
            self._workers -= set(workers)
            self._condition.notify_all()

    def fail(self, error: BaseException) -> None:
        """Has the coordinator raise `error`, as an error of a step."""
        with self._queue._queue_lock:
            self._queue._error = self._queue._error or error
            self._queue._stop_waiting_condition.notify_all()

    def _begin(self, device: str) -> None:
        """Names the worker of this thread, in case that its next execution fails."""
        self._thread.worker = int(device.rpartition(":")[2])

    def _last(self) -> None:
        """Returns when the worker of this thread is in the cluster."""
        worker = self._thread.worker
        with self._condition:
            self._workers.add(worker)
            while worker in self._workers:
                self._condition.wait(_WAKE_SECONDS)


def coordinate(strategy: Any, absent: Collection[int]) -> Absences:
    """Makes the coordinator of `strategy`, which has none yet. The workers `absent` are not connected."""
    from tensorflow.python.distribute.coordinator import cluster_coordinator

    absences = Absences()
    original = cluster_coordinator.WorkerPreemptionHandler

    class Handler(original):  # type: ignore[misc, valid-type]
        def __init__(self, server_def: Any, cluster: Any) -> None:
            super().__init__(server_def, cluster)
            self._worker_up_cond = _Returns(self._cluster_update_lock, absences)

        def _preemption_handler(self) -> None:
            """Ends the thread that would wait for all workers."""

        @contextlib.contextmanager
        def wait_on_failure(
            self, *arguments: Any, worker_device_name: str = "", **named: Any
        ) -> Iterator[None]:
            absences._begin(worker_device_name)
            with super().wait_on_failure(*arguments, worker_device_name=worker_device_name, **named):
                before = connections.changes()
                try:
                    yield
                except (tf.errors.OpError, cluster_coordinator.ClosureInputError) as error:
                    if before == connections.changes() and not connections.connecting():
                        raise
                    # Any error may come of a change of the workers. Another attempt shows it.
                    message = f"{worker_device_name}: while the workers changed: {error}"
                    raise tf.errors.AbortedError(None, None, message) from error

    cluster_coordinator.WorkerPreemptionHandler = Handler
    try:
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    finally:
        cluster_coordinator.WorkerPreemptionHandler = original
    absences._queue = queue = coordinator._cluster.closure_queue
    queue.wait = _waiting(queue.wait)
    for worker in coordinator._cluster.workers:
        if worker.worker_index in absent:
            absences._workers.add(worker.worker_index)
            worker.create_resource(_nothing(worker.device_name))
    return absences


def _nothing(device: str) -> Any:
    """Returns a function that fails as on a lost worker."""

    def fail() -> None:
        raise tf.errors.UnavailableError(None, None, f"{device} has not come yet")

    return fail


def _waiting(wait: Any) -> Any:
    def waiting(*arguments: Any, **named: Any) -> Any:
        with connections.unused():
            return wait(*arguments, **named)

    return waiting


class _Returns:
    """Replaces the condition on which the threads of lost workers wait."""

    def __init__(self, lock: Any, absences: Absences) -> None:
        self._lock = lock
        self._absences = absences

    def wait(self, seconds: float) -> None:
        """Runs with the lock held, as a condition's method."""
        del seconds
        self._lock.release()
        try:
            self._absences._last()
        finally:
            self._lock.acquire()
