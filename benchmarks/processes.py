"""Finds processes by their environment, and measures the time that they have used. Linux only."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path


def with_environment(beginning: str, *whole: str) -> list[int]:
    """Returns the processes with a variable `NAME=value` that begins so, and with all of the other variables;
    oldest first. Zombies have none.
    """
    matches = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            variables = (entry / "environ").read_text(errors="replace").split("\0")
            began = int(_stat(int(entry.name))[19])
        except OSError:
            continue
        if any(variable.startswith(beginning) for variable in variables) and {*whole} <= {*variables}:
            matches.append((began, int(entry.name)))
    # The ids begin anew at some point.
    return [process for _, process in sorted(matches)]


def descendants(process: int) -> list[int]:
    """Returns the process and those that it and they have started, as far as their parents live."""
    processes = [process]
    for each in processes:  # it grows
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                processes += map(int, children.read_text().split())
    return processes


def send(processes: Iterable[int], number: signal.Signals) -> None:
    """Sends the signal to each process that still exists."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def cpu_seconds(process: int) -> float:
    """Returns user and system time so far. Raises OSError where the process has ended."""
    fields = _stat(process)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _stat(process: int) -> list[str]:
    """Returns the fields of /proc/PID/stat from the third on. Raises OSError where the process has ended."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
