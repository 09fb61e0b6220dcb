"""Ports of this machine for the servers of a test."""

from __future__ import annotations

import contextlib
import random
import socket


def free_ports(count: int) -> list[int]:
    """Returns different ports that were free a moment ago.

    They are below Linux' ephemeral ports, or a connection could take one in the meantime. A test's seed does
    not choose them, or tests that run at once would take the same ones.
    """
    chosen = random.SystemRandom()
    sockets: dict[int, socket.socket] = {}
    while len(sockets) < count:
        port = chosen.randrange(10_000, 32_000)
        with contextlib.suppress(OSError):
            sockets[port] = socket.create_server(("127.0.0.1", port))
    for opened in sockets.values():
        opened.close()
    return list(sockets)


def free_addresses(count: int) -> list[str]:
    return [f"127.0.0.1:{port}" for port in free_ports(count)]
