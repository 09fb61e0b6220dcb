"""The files in which Linux says what the container of this process may use and has used."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup")


def folders(controller: str) -> list[Path]:
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


def named_numbers(path: Path) -> dict[str, int]:
    """Returns the numbers of a file with a name and a number in each line."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdigit()}


def numbers(path: Path) -> list[int]:
    """Returns the numbers that a file consists of; none where it is missing or says "max", for no limit."""
    try:
        return [int(word) for word in path.read_text().split()]
    except (OSError, ValueError):
        return []
