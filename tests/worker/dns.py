"""A real DNS server for names of pods, and a process that uses only this server, in its own namespaces."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Collection
from pathlib import Path

from tests.worker.cluster import ROOT

SERVER = "127.0.0.53"
RESOLV_CONF = f"""
search team.svc.cluster.local svc.cluster.local cluster.local
nameserver {SERVER}
options ndots:5
"""
"""The content in a pod of namespace `team`."""

_A = 1
_KNOWN, _FAILURE, _NO_SUCH_NAME = 0x8580, 0x8182, 0x8583
"""Flags of an answer: NOERROR, SERVFAIL and NXDOMAIN (RFC 1035, 4.1.1)."""


class DnsServer:
    """Answers at `SERVER` with 127.0.0.1 for `names`. `queries` are those that it got, each a name and a
    type. A `silent` server does not answer; a `failing` one answers with SERVFAIL.
    """

    def __init__(self, names: Collection[str] = ()) -> None:
        self.names = set(names)
        self.queries: list[tuple[str, int]] = []
        self.silent = False
        self.failing = False
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((SERVER, 53))
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _serve(self) -> None:
        while True:
            query, sender = self._socket.recvfrom(512)
            if len(query) < 12:
                return  # the socket is closed
            name, kind, end = _question(query)
            self.queries.append((name, kind))
            if self.silent:
                continue
            known = name in self.names
            flags = _FAILURE if self.failing else _KNOWN if known else _NO_SUCH_NAME
            answers = int(known and kind == _A and not self.failing)
            answer = query[:2] + struct.pack(">HHHHH", flags, 1, answers, 0, 0) + query[12:end]
            if answers:
                # The name is at byte 12; IN, 5 s, 4 bytes.
                answer += struct.pack(">HHHIH", 0xC00C, _A, 1, 5, 4) + socket.inet_aton("127.0.0.1")
            self._socket.sendto(answer, sender)


def _question(query: bytes) -> tuple[str, int, int]:
    """Returns the name, the type, and where the question ends."""
    labels, at = [], 12
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode())
        at += 1 + length
    return ".".join(labels).lower(), struct.unpack_from(">H", query, at + 1)[0], at + 5


def possible() -> bool:
    """Returns whether this machine allows namespaces."""
    if not shutil.which("unshare"):
        return False
    return subprocess.run(["unshare", "-Urmn", "true"], capture_output=True, check=False).returncode == 0


_ENTER = """
import fcntl, socket, struct
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
    fcntl.ioctl(device, 0x8914, struct.pack("16sH22x", b"lo", 0x41))  # SIOCSIFFLAGS: IFF_UP, IFF_RUNNING
"""


def run(code: str, folder: Path, seconds: float = 120.0) -> str:
    """Returns what Python prints for `code`, with its own network, a loopback device, and with this resolver.
    The code starts the server, or does not.
    """
    (folder / "resolv.conf").write_text(RESOLV_CONF)
    script = 'mount --bind "$1" /etc/resolv.conf && shift && exec "$@"'
    done = subprocess.run(
        [
            *("unshare", "-Urmn", "sh", "-c", script, "sh", str(folder / "resolv.conf")),
            *(sys.executable, "-c", _ENTER + code),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
