"""This process' connections to the cluster, which TensorFlow keeps in one context for the process.

Nothing here has a public function. TensorFlow is imported when a function is called.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

_connecting = threading.Event()


def is_connected() -> bool:
    """Whether this process has connected to a cluster."""
    return _context().get_server_def() is not None


def is_in_collective() -> bool:
    """Whether this process has built a MultiWorkerMirroredStrategy of several tasks."""
    return _context()._collective_ops_server_def is not None


def own_device() -> str | None:
    """This task's CPU by its name in the cluster; None before it has connected to one."""
    server = _context().get_server_def()
    if server is None:
        return None
    return f"/job:{server.job_name}/replica:0/task:{server.task_index}/device:CPU:0"


def connect_again() -> None:
    """Makes restarted tasks known to this process, as the coordinator does when it next uses them.

    Blocks while any task of the cluster is away. Raises OpError where one is lost meanwhile.
    """
    _context().update_server_def(_context().get_server_def())


def before_connecting(action: Callable[[], None]) -> None:
    """From now on this process calls `action` each time before it opens new connections to lost workers."""
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
    """Whether new connections are being opened. TensorFlow's operations may fail then with any error: where a
    network lost packets, with "Resource input tensor contains an invalid device" and "End of sequence".
    """
    return _connecting.is_set()


def put_key(key: str, value: str) -> None:
    """Stores `value` in the coordination service. Raises AlreadyExistsError where `key` has one."""
    _context().set_config_key_value(key, value)


def get_key(key: str) -> str:
    """What some task has stored under `key`; waits for it."""
    return str(_context().get_config_key_value(key))


def keep_functions() -> None:
    """Has TensorFlow keep its functions when Python collects them: each would be removed from every task by a
    message, with some lines of error for each task that has left.
    """
    from tensorflow.python.eager.polymorphic_function import atomic_function

    references: dict[Any, int] = atomic_function.RUNTIME_FUNCTION_REFS
    for key in references:
        references[key] += 1


def _context() -> Any:
    from tensorflow.python.eager import context

    return context.context()
