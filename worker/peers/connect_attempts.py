"""Attempts of this process to connect that nobody answers, ended sooner than gRPC ends them.

gRPC gives an attempt 20 s, a time for which TensorFlow has no option. Where a pod is gone, its packets are
dropped, and whoever closes the connection to it waits for as long.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from worker.peers import probes, tcp_tables

_POLL_SECONDS: Final = 0.2
_DESCRIPTORS: Final = Path("/proc/self/fd")


@contextlib.contextmanager
def limited(address: str, seconds: float) -> Iterator[None]:
    """Ends all attempts to connect to `address`, an IP address and port, that are under way after so many
    seconds in the block, and those that begin later in it.
    """
    left = threading.Event()

    def watch() -> None:
        left.wait(seconds)
        while not left.is_set():
            end(address)
            left.wait(_POLL_SECONDS)

    thread = threading.Thread(target=watch, name="connect-attempts", daemon=True)
    thread.start()
    try:
        yield
    finally:
        left.set()
        thread.join()


def end(address: str) -> int:
    """Has the attempts under way to connect to `address` fail. Returns how many there were."""
    there = probes.split(address)
    inodes = {
        connection.inode
        for connection in tcp_tables.connections()
        if connection.state == tcp_tables.CONNECTING and (connection.ip, connection.port) == there
    }
    return sum(_shut_down(int(path.name), inodes) for path in _DESCRIPTORS.iterdir()) if inodes else 0


def _shut_down(descriptor: int, inodes: set[int]) -> bool:
    """Ends what the descriptor stands for if it is one of the sockets with these inodes."""
    try:
        copy = os.dup(descriptor)  # gRPC may close its own meanwhile
    except OSError:
        return False
    try:
        if os.fstat(copy).st_ino not in inodes:
            return False
        with socket.socket(fileno=os.dup(copy)) as attempt, contextlib.suppress(OSError):
            attempt.shutdown(socket.SHUT_RDWR)
        return True
    finally:
        os.close(copy)
