"""Chooses free ports on this machine, different ones for each run that goes on."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Collection
from pathlib import Path
from typing import Final

_FIRST: Final = 20_000
_LAST: Final = 32_767
"""Below the range from which the kernel takes ports for outgoing connections (32768 and up on Linux, 49152 on
macOS): none can take a task's port away while the task is being restarted."""


def choose(count: int, taken: Collection[int]) -> list[int]:
    """This many free ports that are not in `taken`. Raises OSError if there are too few.

    The tasks bind them a few seconds later, so the caller must pass them in `taken` until then. The search
    starts at a random port, since other users' runs are not known.
    """
    candidates = list(range(_FIRST, min(_LAST, _first_ephemeral() - 1) + 1)) or list(range(_FIRST, _LAST + 1))
    begin = random.randrange(len(candidates))  # noqa: S311 - no secret
    ports: list[int] = []
    for port in candidates[begin:] + candidates[:begin]:
        if len(ports) == count:
            break
        if port not in taken and is_free(port):
            ports.append(port)
    if len(ports) < count:
        raise OSError(f"{count} free ports are needed, {len(ports)} were found")
    return ports


def is_free(port: int) -> bool:
    """Whether a server could listen on all addresses at this port, as TensorFlow's does."""
    family = socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET
    for candidate in (family, socket.AF_INET):
        try:
            with socket.socket(candidate, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if candidate == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                probe.bind(("", port))
            return True
        except OSError as error:
            if candidate == socket.AF_INET6 and error.errno != errno.EADDRINUSE:
                continue  # built with IPv6, booted without
            return False
    return False


def _first_ephemeral() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
