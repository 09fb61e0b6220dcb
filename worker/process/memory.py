"""The memory that this process may use, and uses; and the processors."""

from __future__ import annotations

import os
import resource
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
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


def processors() -> int:
    """Returns how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def throttled() -> float | None:
    """Returns the seconds for which the limit on CPU has held up the container; None where that is not
    known.
    """
    stat = next(filter(None, (_numbers(folder / "cpu.stat") for folder in _cgroups("cpu"))), {})
    if "throttled_usec" in stat:
        return stat["throttled_usec"] / 1e6
    return stat["throttled_time"] / 1e9 if "throttled_time" in stat else None


def of_container() -> tuple[int, int] | None:
    """Returns the bytes that all processes of the container use, files in memory (/dev/shm) included, and
    its limit; None where it has none. What Linux keeps of other files is left out: it takes that back.
    """
    usages = []
    for folder in _cgroups("memory"):
        for most, now, prefix in _FILES:
            limit, used = _first_number(folder / most), _first_number(folder / now)
            if limit is not None and used is not None and limit < _NO_LIMIT:
                stat = _numbers(folder / "memory.stat")
                kept = sum(stat.get(f"{prefix}{name}", 0) for name in ("inactive_file", "active_file"))
                usages.append((max(0, used - kept), limit))
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


def _cgroups(controller: str) -> list[Path]:
    """Returns the folders of this process's cgroup and of those around it, of version 2 or 1. In a container
    they begin with the container's own, which may be at the root, whatever its path is elsewhere.
    """
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    paths: dict[str, str] = {}
    for line in lines:  # 4:cpu,cpuacct:/path; version 2 has 0::/path
        _, names, path = line.split(":", 2)
        paths.update(dict.fromkeys(names.split(","), path))
    root = _ROOT / controller if controller in paths else _ROOT
    folder = root / paths.get(controller, paths.get("", "/")).lstrip("/")
    around = [each for each in folder.parents if each.is_relative_to(root)]
    return [each for each in dict.fromkeys([folder, *around]) if each.is_dir()]


def _numbers(path: Path) -> dict[str, int]:
    """Returns the numbers of a file with a name and a number in each line."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdigit()}


def _first_number(path: Path) -> int | None:
    try:
        return int(path.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None  # "max", where there is no limit


def _kilobytes(path: str, name: str) -> int | None:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), None)
