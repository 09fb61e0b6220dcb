"""The moments at which TensorFlow's coordinator opens new connections to the cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

_connecting = threading.Event()


def before_connecting(action: Callable[[], None]) -> None:
    """From now on this process calls `action` each time before it opens new connections.

    TensorFlow has no public function for it: `Context.update_server_def` is replaced in the process' one
    context (2.16 to 2.21).
    """
    from tensorflow.python.eager import context

    own = context.context()
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
