"""The memory that this process may use, and uses."""

from __future__ import annotations

import resource
from pathlib import Path

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""A container's, of version 2 and 1 of cgroups. Version 1 has a number near 2**63 where there is no limit."""


def limit() -> int | None:
    """Returns the bytes that the container, or else the machine, lets its processes use; None where neither
    says.
    """
    limits = [_first_number(path) for path in _LIMITS] + [_kilobytes("/proc/meminfo", "MemTotal:")]
    return min((number for number in limits if number is not None), default=None)


def used() -> int:
    """Returns the bytes that this process uses now."""
    now = _kilobytes("/proc/self/status", "VmRSS:")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 if now is None else now


def _first_number(path: str) -> int | None:
    try:
        return int(Path(path).read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None  # "max", where there is no limit


def _kilobytes(path: str, name: str) -> int | None:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), None)
