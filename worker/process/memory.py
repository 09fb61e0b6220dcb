"""The memory that this process may use, and uses."""

from __future__ import annotations

import resource
from pathlib import Path

from worker.process import cgroups

_FILES = (
    ("memory.max", "memory.current", ""),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
)
"""Limit, usage, and the beginning of names in memory.stat: of version 2 and 1."""
_NO_LIMIT = 1 << 60
"""Version 1 of cgroups has a number near 2**63 where there is no limit."""


def limit() -> int | None:
    """Returns the bytes that the container, or else the machine, lets its processes use; None where neither
    says.
    """
    container, machine = of_container(), _kilobytes("/proc/meminfo", "MemTotal:")
    limits = [None if container is None else container[1], machine]
    return min((number for number in limits if number is not None), default=None)


def used() -> int:
    """Returns the bytes that this process uses now."""
    now = of_process("self")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 if now is None else now


def of_process(process: int | str) -> int | None:
    """Returns the bytes that a process uses now, None where that is not known."""
    return _kilobytes(f"/proc/{process}/status", "VmRSS:")


def of_container() -> tuple[int, int] | None:
    """Returns the bytes that all processes of the container use, files in memory (/dev/shm) included, and
    its limit; None where it has none. What Linux keeps of other files is left out: it takes that back.
    """
    usages = []
    for folder in cgroups.folders("memory"):
        for most, now, prefix in _FILES:
            limits, used = cgroups.numbers(folder / most), cgroups.numbers(folder / now)
            if limits and used and limits[0] < _NO_LIMIT:
                stat = cgroups.named_numbers(folder / "memory.stat")
                kept = sum(stat.get(f"{prefix}{name}", 0) for name in ("inactive_file", "active_file"))
                usages.append((max(0, used[0] - kept), limits[0]))
    return min(usages, key=lambda each: each[1] - each[0], default=None)


def room() -> int | None:
    """Returns the bytes that are left for all processes of the container, and for what they keep in /dev/shm;
    None where that is not known. This process may take again what it has taken at its peak.
    """
    free, container = [_kilobytes("/proc/meminfo", "MemAvailable:")], of_container()
    if container is not None:
        free.append(container[1] - container[0])
    known = [number for number in free if number is not None]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return min(known) - max(0, peak - used()) if known else None


def _kilobytes(path: str, name: str) -> int | None:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), None)
