"""The connections of this process to the cluster, which TensorFlow keeps in one context for each process.

None of these has a public function. TensorFlow is imported when a function is called.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

_connecting = threading.Event()
_changes = 0
_cluster: Any = None
"""The whole cluster of a strategy that was made in `limited_to`, a ServerDef."""
_locate: Callable[[Collection[str]], Mapping[str, str]] | None = None
"""Returns where the tasks with these addresses are now, see `limited_to`."""
_use = threading.Lock()
_user: int | None = None
"""The thread that holds `_use`, see `use_alone`."""


def is_connected() -> bool:
    """Returns whether this process has connected to a cluster."""
    return _context().get_server_def() is not None


def is_in_collective() -> bool:
    """Whether this process has built a MultiWorkerMirroredStrategy of several tasks."""
    return _context()._collective_ops_server_def is not None


def own_device() -> str | None:
    """Returns the name of this task's CPU in the cluster; None before this process has connected to one."""
    server = _context().get_server_def()
    if server is None:
        return None
    return f"/job:{server.job_name}/replica:0/task:{server.task_index}/device:CPU:0"


@contextlib.contextmanager
def limited_to(
    workers: Callable[[], Collection[int]],
    connected: Callable[[], None],
    locate: Callable[[Collection[str]], Mapping[str, str]] | None = None,
) -> Iterator[None]:
    """Has the strategy that is made in the block connect to `workers()` of its cluster, and to no other
    worker. `connected` is called once it has. Then, and at each later change, `locate` says where the tasks
    with these addresses are.

    The strategy still counts all workers of the cluster.
    """
    global _locate
    _locate = locate
    eager_context = _context()
    original = eager_context.set_server_def

    def set_server_def(server_def: Any, *arguments: Any, **named: Any) -> None:
        global _cluster
        _cluster = server_def
        original(_limited(server_def, workers()), *arguments, **named)
        connected()

    eager_context.set_server_def = set_server_def
    try:
        yield
    finally:
        del eager_context.set_server_def


def connect(workers: Collection[int]) -> None:
    """Connects this process to `workers` of its cluster, and to no other worker. Restarted tasks become known
    to it, and functions are registered at new ones. Calls on the other workers continue.

    It blocks until the thread of `use_alone` waits, while a worker that is hung leaves, and while one of
    `workers` or a ps is away. Raises OpError where one is lost meanwhile; then the next call mends that.
    """
    global _changes
    eager_context = _context()
    server_def = _limited(_cluster or eager_context.get_server_def(), workers)
    with _use if _user != threading.get_ident() else contextlib.nullcontext():
        _connecting.set()
        _changes += 1
        eager_context.update_server_def(server_def)
        _connecting.clear()


def place(worker: int) -> str | None:
    """Returns the address by which this process is connected to a worker; None where it is not."""
    server = _context().get_server_def()
    jobs = [] if server is None else [job for job in server.cluster.job if job.name == "worker"]
    return next((str(job.tasks[worker]) for job in jobs if worker in job.tasks), None)


def answers(worker: int) -> bool:
    """Asks a worker that this process is connected to for its status. Returns whether it answers.

    Where its machine is gone, gRPC takes 20 s to give the connection up, or less where the attempt is ended
    (`worker/peers/connect_attempts.py`). `connect`, which closes what has left, would wait for that, and
    nobody would take a step. After this call it does not wait, since the connection is known to fail.
    TensorFlow's own `check_alive` would hold Python's lock meanwhile, so its C function is called.
    """
    import tensorflow as tf

    library = ctypes.CDLL(f"{tf.sysconfig.get_lib()}/libtensorflow_cc.so.2")
    new_status, pointer_of = library.TF_NewStatus, ctypes.pythonapi.PyCapsule_GetPointer
    new_status.restype = pointer_of.restype = ctypes.c_void_p
    pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
    context = ctypes.c_void_p(pointer_of(_context()._handle, None))
    check = library.TFE_ContextCheckAlive
    check.restype = ctypes.c_bool
    status = ctypes.c_void_p(new_status())
    try:
        return bool(check(context, f"/job:worker/replica:0/task:{worker}".encode(), status))
    finally:
        library.TF_DeleteStatus(status)


def changes() -> int:
    """Returns how many times the cluster was changed, or has begun to be."""
    return _changes


def use_alone(alone: bool) -> None:
    """Says whether this thread now uses TensorFlow for itself, except in `unused`: no other thread may change
    the cluster meanwhile.

    TensorFlow (2.21) registers new functions, and those that it makes of single operations, at all workers.
    Where one is removed at that moment, an operation on this very machine fails: "Client for target
    /job:worker/replica:0/task:0 not found".
    """
    global _user
    if alone:
        _use.acquire()
        _user = threading.get_ident()
    else:
        _user = None
        _use.release()


@contextlib.contextmanager
def unused() -> Iterator[None]:
    """In the block this thread only waits: other threads may change the cluster."""
    if _user != threading.get_ident():
        yield
        return
    use_alone(False)
    try:
        yield
    finally:
        use_alone(True)


def _limited(server_def: Any, workers: Collection[int]) -> Any:
    """Returns `server_def` with `workers` alone, and each task where it answers now."""
    limited = type(server_def)()
    limited.CopyFrom(server_def)
    for job in limited.cluster.job:
        if job.name == "worker":
            for index in set(job.tasks) - set(workers):
                del job.tasks[index]
    if _locate is not None:
        places = _locate({address for job in limited.cluster.job for address in job.tasks.values()})
        for job in limited.cluster.job:
            for index, address in job.tasks.items():
                job.tasks[index] = places[address]
    return limited


def connecting() -> bool:
    """Returns whether new connections are being opened. TensorFlow's operations may then fail with any error:
    where a network lost packets, with "Resource input tensor contains an invalid device" and "End of
    sequence".
    """
    return _connecting.is_set()


def put_key(key: str, value: str) -> None:
    """Stores `value` in the coordination service. Raises AlreadyExistsError where `key` has one."""
    _context().set_config_key_value(key, value)


def delete_key(key: str) -> None:
    """Removes `key` from the coordination service, and the keys below it."""
    _context().delete_config_key_value(key)


def get_key(key: str) -> str:
    """Waits until some task has stored a value under `key`, and returns it."""
    return str(_context().get_config_key_value(key))


def abort_collectives(reason: str) -> None:
    """Has each operation of the collective fail (UnavailableError), those under way and all later ones."""
    import tensorflow as tf

    _context().abort_collective_ops(tf.errors.UNAVAILABLE, reason)


def keep_functions() -> None:
    """Keeps TensorFlow's functions alive after Python deletes them. To remove one sends a message to every
    task, which logs some lines of error for each task that has left.
    """
    from tensorflow.python.eager.polymorphic_function import atomic_function

    references: dict[Any, int] = atomic_function.RUNTIME_FUNCTION_REFS
    for key in references:
        references[key] += 1


def _context() -> Any:
    from tensorflow.python.eager import context

    return context.context()
