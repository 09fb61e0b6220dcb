"""What a chief has on a TensorFlow server: a context with its variables, tables and iterators.

A server keeps the context of a dead chief for 10 minutes (2.21). No public function closes it; the server's
own RPC does (tensorflow/core/protobuf/eager_service.proto), through grpcio, which TensorFlow itself requires.
"""

from __future__ import annotations

import contextlib
import struct
import threading
from typing import Any

_CLOSE = "/tensorflow.eager.EagerService/CloseContext"
_SECONDS = 30.0
_WAIT_SECONDS = 1.0
"""A server answers at once, unless a function of that context still waits for the process that is gone."""
_NEWEST_VIEW = (1 << 62) - 1
"""A server ignores the request of a view that is older than its own."""


def own_id() -> int:
    """Returns the number that this process's context has on all servers."""
    from tensorflow.python import pywrap_tfe
    from tensorflow.python.eager import context

    return int(pywrap_tfe.TFE_GetContextId(context.context()._context_handle)) & ((1 << 64) - 1)


def close(address: str, number: int) -> bool:
    """Closes the context `number` on the server at `address`, and frees what is in it. It does nothing where
    there is no such context. Returns whether the server has answered within a second; it may do so later.
    """
    try:
        import grpc
    except ImportError:  # an image whose TensorFlow was built without its own requirements
        return False
    answered = threading.Event()
    arguments = (grpc, address, number, answered)
    thread = threading.Thread(target=_close, args=arguments, name="close-context", daemon=True)
    thread.start()
    thread.join(_WAIT_SECONDS)
    return answered.is_set()


def _close(grpc: Any, address: str, number: int, answered: threading.Event) -> None:
    # message CloseContextRequest { fixed64 context_id = 1; fixed64 context_view_id = 2; }
    request = struct.pack("<BQBQ", 0x09, number, 0x11, _NEWEST_VIEW)
    channel = grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)])
    with channel, contextlib.suppress(grpc.RpcError):
        channel.unary_unary(_CLOSE)(request, timeout=_SECONDS)
        answered.set()
