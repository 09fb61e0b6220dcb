"""A connection by which two tasks notice at once that the other one is gone.

TensorFlow's collectives notice a lost task when an operation fails at the connection to it, or by missing
heartbeats after 7 s: a process that is back in its pod within a second answers, and its peers wait.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

from worker.failures import Failure
from worker.peers import probes
from worker.task import Task

_CONNECT_SECONDS = 30.0
_NAME_BYTES = 256
_FIRST = "peer-connections"
_lost: list[str] = []
_listeners: list[Callable[[str], None]] = []
_lock = threading.Lock()
_over = threading.Event()


def watch_peers(task: Task) -> None:
    """Has the collective fail at once where a task is lost: the first task sees the end of each other one,
    which ends it, and the others see that. Every task of a collective must call it.
    """
    from worker.collective import kv_store  # imports TensorFlow
    from worker.tf_compat import connections

    def lost(name: str) -> None:
        if _over.is_set():
            return
        connections.abort_collectives(f"the connection of {name} has ended")
        with _lock:
            _lost.append(name)
            listeners = list(_listeners)
        for tell in listeners:
            tell(name)

    if task.address is None or not task.peers:
        return
    host, _ = probes.split(task.address)
    # A task that is lost already is told by what this one does next.
    with contextlib.suppress(Failure, OSError, *kv_store.ERRORS):
        if task.rank == 0:
            kv_store.put(_FIRST, f"{host}:{_listen(lost)}")
        else:
            (first,) = kv_store.gather([_FIRST], task.peers, "connecting")
            _attend(first, task.address, "the first task", lost)


def end() -> None:
    """Has the end of a connection mean nothing from now on: the tasks leave in good order."""
    _over.set()


def on_lost(tell: Callable[[str], None]) -> None:
    """Has `tell` get the name of each lost task that this one sees, once `watch_peers` was called; in a
    thread of its own. A task that waits for data is in no operation of the collective, which would fail.
    """
    with _lock:
        _listeners.append(tell)
        before = list(_lost)
    for name in before:
        tell(name)


def _listen(lost: Callable[[str], None]) -> int:
    """Accepts connections of `_attend` from now on. Returns the port. `lost` gets the name of each task whose
    connection ends, in a thread of its own.
    """
    server = socket.create_server(("", 0), backlog=128)

    def accept() -> None:
        while True:
            connection, _ = server.accept()
            _watch(connection, None, lost)

    threading.Thread(target=accept, name="presence", daemon=True).start()
    return int(server.getsockname()[1])


def _attend(address: str, own_name: str, other: str, lost: Callable[[str], None]) -> None:
    """Connects the task of the name `own_name` to that of the name `other`, which listens at `address`.
    `lost` gets the other's name when the connection ends. Raises OSError where there is none.
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
