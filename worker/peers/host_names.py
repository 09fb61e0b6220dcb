"""Looks up host names within a time limit, and says why a look-up fails: the name is unknown, or no DNS
server answers. Standard library only.

The C library has one error (EAI_AGAIN) for a server that is silent and one that fails. It takes up to 40 s
for it: 5 s, twice, for each of a pod's three search domains and the name itself (resolv.conf(5)). So this
module also sends a query of its own to the server.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

RESOLV_CONF = Path("/etc/resolv.conf")
_DNS_PORT = 53
_ANSWER_SECONDS = 1.0
_ASKED_AGAIN_SECONDS = 2.0
"""Interval between two queries to the servers: a thousand names may fail for the same reason."""

_UNKNOWN = tuple(
    getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY") if hasattr(socket, name)
)

# The query after its id: recursion desired, one question, the name servers (2) of the root, class IN (1). RFC
# 1035, 4.
_QUESTION = bytes.fromhex("0100 0001 0000 0000 0000 00 0002 0001")

Address = tuple[int, Any]
"""A socket's family, and the address that it connects to."""


class Unresolved(Exception):  # noqa: N818 - says what happened
    """The name was not found. The text says why, as the end of a sentence about its task."""


def is_ip(host: str) -> bool:
    """Returns whether `host` is an address, and no name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def look_up(host: str, port: int, seconds: float) -> list[Address]:
    """Returns all addresses of `host`, which is a name or an address. Raises `Unresolved` after at most
    `seconds`, plus the time of a query to the DNS servers. A look-up that takes longer goes on, and the next
    call gets its result.
    """
    if is_ip(host):
        return _addresses(host, port)
    with _lock:
        lookup = _lookups.get((host, port))
        if lookup is None:
            lookup = _lookups[host, port] = _Lookup(host, port)
            lookup.start()
    lookup.join(seconds)
    if lookup.is_alive():
        raise Unresolved(_servers_trouble() or "the look-up of its name takes long")
    with _lock:
        if _lookups.get((host, port)) is lookup:
            del _lookups[host, port]
    if lookup.error is not None:
        raise Unresolved(_explained(lookup.error)) from lookup.error
    return lookup.addresses


class _Lookup(threading.Thread):
    """One call of getaddrinfo, which cannot be interrupted."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(name=f"look-up of {host}", daemon=True)
        self._host, self._port = host, port
        self.addresses: list[Address] = []
        self.error: OSError | UnicodeError | None = None

    def run(self) -> None:
        try:
            self.addresses = _addresses(self._host, self._port)
        except (OSError, UnicodeError) as error:  # UnicodeError: no host name, such as a too long one
            self.error = error


_lock = threading.Lock()
_lookups: dict[tuple[str, int], _Lookup] = {}


def _addresses(host: str, port: int) -> list[Address]:
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(int(family), address) for family, _, _, _, address in infos]


def _explained(error: OSError | UnicodeError) -> str:
    if isinstance(error, socket.gaierror) and error.errno in _UNKNOWN:
        return "DNS does not know its name"
    if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
        servers = " and ".join(_servers())
        return _servers_trouble() or f"the DNS server {servers} answers, but not with an address (SERVFAIL?)"
    return f"its name cannot be looked up ({getattr(error, 'strerror', None) or error})"


def _servers() -> list[str]:
    """Returns the DNS servers of the C library, which is this machine's own where none is configured."""
    try:
        lines = RESOLV_CONF.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    words = [line.split() for line in lines]
    return [line[1] for line in words if len(line) > 1 and line[0] == "nameserver"][:3] or ["127.0.0.1"]


_asking = threading.Lock()
_asked: tuple[float, str] = (float("-inf"), "")


def _servers_trouble() -> str:
    """Returns a text about the DNS servers that do not answer, "" where all do."""
    global _asked
    with _asking:
        if time.monotonic() - _asked[0] >= _ASKED_AGAIN_SECONDS:
            silent = [server for server in _servers() if not _answers(server)]
            verb = "does" if len(silent) == 1 else "do"
            trouble = f"the DNS server {' and '.join(silent)} {verb} not answer" if silent else ""
            _asked = time.monotonic(), trouble
        return _asked[1]


def _answers(server: str) -> bool:
    """Returns whether the server sends any answer."""
    query = os.urandom(2) + _QUESTION
    try:
        (family, address), *_ = _addresses(server, _DNS_PORT)
        with socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.settimeout(_ANSWER_SECONDS)
            asking.connect(address)
            for _ in range(2):  # a datagram may be lost
                asking.send(query)
                try:
                    return asking.recv(512)[:2] == query[:2]
                except TimeoutError:
                    continue
    except OSError:  # refused, or no route
        pass
    return False
