"""A connection by which two tasks notice at once that the other one is gone. Standard library only.

A task of a collective that waits for data is in no operation of the collective, which would fail when another
task is lost.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

from worker.peers import probes

_CONNECT_SECONDS = 30.0
_NAME_BYTES = 256


def listen(lost: Callable[[str], None]) -> int:
    """Accepts connections of `attend` from now on. Returns the port. `lost` gets the name of each task whose
    connection ends, in a thread of its own.
    """
    server = socket.create_server(("", 0), backlog=128)

    def accept() -> None:
        while True:
            connection, _ = server.accept()
            _watch(connection, None, lost)

    threading.Thread(target=accept, name="presence", daemon=True).start()
    return int(server.getsockname()[1])


def attend(address: str, own_name: str, other: str, lost: Callable[[str], None]) -> None:
    """Connects the task of the name `own` to that of the name `other`, which listens at `address`. `lost`
    gets the other's name when the connection ends. Raises OSError where there is none.
    """
    connection = socket.create_connection(probes.split(address), _CONNECT_SECONDS)
    connection.settimeout(None)
    connection.sendall(own_name.encode().ljust(_NAME_BYTES))
    _watch(connection, other, lost)


def _watch(connection: socket.socket, name: str | None, lost: Callable[[str], None]) -> None:
    def watch() -> None:
        peer = name
        with contextlib.suppress(OSError), connection:
            if peer is None:
                peer = connection.recv(_NAME_BYTES, socket.MSG_WAITALL).decode().strip()
            while connection.recv(1):
                pass
        if peer:
            lost(peer)

    threading.Thread(target=watch, name="presence", daemon=True).start()
