"""The TCP connections of this pod, as Linux lists them in proc_net_tcp.txt of its documentation."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
"""They have the connections of the pod, and of no other."""
ESTABLISHED: Final = "01"
CONNECTING: Final = "02"
"""The other side has not answered yet."""


class Connection(NamedTuple):
    """Where a connection leads, its state, how many bytes wait to be sent, and the socket's inode."""

    ip: str
    port: int
    state: str
    queued: int
    inode: int


def connections(tables: tuple[Path, ...] = TABLES) -> Iterator[Connection]:
    """Yields all of them, and those that listen. A table that cannot be read counts as empty."""
    for table in tables:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            remote, state, queues, inode = fields[2], fields[3], fields[4], fields[9]
            host, _, port = remote.partition(":")
            queued = int(queues.partition(":")[0], 16)
            yield Connection(ip_address(host), int(port, 16), state, queued, int(inode))


def ip_address(hexadecimal: str) -> str:
    """Returns the IP address that Linux prints as 32-bit words in the processor's order. One of IPv4 that is
    written as IPv6 is given as the former.
    """
    words = (hexadecimal[start : start + 8] for start in range(0, len(hexadecimal), 8))
    packed = b"".join(bytes.fromhex(word)[::-1] for word in words)
    if len(packed) == 16 and packed[:12] == bytes(10) + b"\xff\xff":
        packed = packed[12:]
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)
