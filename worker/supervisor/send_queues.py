"""For how long data of this task wait to be sent to another one: its network, or the other's, is slow.

The times of the steps do not tell: where one connection of a ring is slow, all tasks wait for their sums.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from worker.contract.environment import Env
from worker.peers import probes, tcp_tables

_LEAST_BYTES: Final = 20_000
"""What a few round trips take away does not count."""
_INTERVAL_SECONDS: Final = 0.1


class SendQueues:
    """Looks at the queues of the connections to `peers`, which maps pod names to addresses."""

    def __init__(self, peers: Mapping[str, str], tables: tuple[Path, ...] = tcp_tables.TABLES) -> None:
        self._peers = peers
        self._tables = tables
        self._seconds: dict[str, float] = {}
        self._names: dict[str, str] = {}
        """The peer of each IP address that has been asked for, "" of another host."""

    def follow(self) -> None:
        """Looks again and again, in a thread. Not on this machine, whose tasks have no network between."""
        if self._peers and self._tables[0].exists() and Env.LOCAL not in os.environ:
            threading.Thread(target=self._follow, name="send-queues", daemon=True).start()

    def seconds(self) -> dict[str, float]:
        """Returns the seconds since the start for which data were queued, by the peer that they are for."""
        return dict(self._seconds)

    def look(self, seconds: float) -> None:
        """Counts the peers for which data are queued now, for so many seconds."""
        for name in {self._name(address) for address in self._waiting()} - {""}:
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def _follow(self) -> None:
        before = time.monotonic()
        while True:
            time.sleep(_INTERVAL_SECONDS)
            now = time.monotonic()
            self.look(now - before)
            before = time.monotonic() if time.monotonic() - now > _INTERVAL_SECONDS else now

    def _waiting(self) -> Iterator[str]:
        """Yields the IP addresses for which data are queued."""
        for connection in tcp_tables.connections(self._tables):
            if connection.state == tcp_tables.ESTABLISHED and connection.queued >= _LEAST_BYTES:
                yield connection.ip

    def _name(self, address: str) -> str:
        """Returns the pod name of the peer at this address. A pod that was replaced has another one."""
        if address not in self._names:
            self._names |= {ip: name for name, peer in self._peers.items() for ip in _addresses(peer)}
            self._names.setdefault(address, "")
        return self._names[address]


def _addresses(peer: str) -> list[str]:
    try:
        answers = socket.getaddrinfo(*probes.split(peer), type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(each[4][0]) for each in answers]
