"""The connections of this process to the cluster, which TensorFlow keeps in one context for each process.

None of these has a public function. TensorFlow is imported when a function is called.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

_connecting = threading.Event()


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


def connect_again() -> None:
    """Makes restarted tasks known to this process, as the coordinator does when it next uses them.

    It blocks while any task of the cluster is away. Raises OpError where one is lost meanwhile.
    """
    _context().update_server_def(_context().get_server_def())


def before_connecting(action: Callable[[], None]) -> None:
    """Has this process call `action` from now on each time before it opens new connections to
    lost workers.
    """
    own = _context()
    update = own.update_server_def

    def updated(*arguments: Any, **named: Any) -> None:
        action()
        _connecting.set()
        try:
            update(*arguments, **named)
        finally:
            _connecting.clear()

    own.update_server_def = updated


def connecting() -> bool:
    """Returns whether new connections are being opened. TensorFlow's operations may then fail with any error:
    where a network lost packets, with "Resource input tensor contains an invalid device" and "End of
    sequence".
    """
    return _connecting.is_set()


def put_key(key: str, value: str) -> None:
    """Stores `value` in the coordination service. Raises AlreadyExistsError where `key` has one."""
    _context().set_config_key_value(key, value)


def get_key(key: str) -> str:
    """Waits until some task has stored a value under `key`, and returns it."""
    return str(_context().get_config_key_value(key))


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
