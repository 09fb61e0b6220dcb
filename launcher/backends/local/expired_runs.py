"""Removes runs whose ttlSecondsAfterFinished is over. No process waits for that time: the next command
removes them.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from launcher.backends import folders
from launcher.backends.local.store import BrokenRunError, RunDirectory, run_directories, unfinished


def sweep(store: Path) -> None:
    """Removes finished runs whose ttlSecondsAfterFinished is over, and files that killed submissions and
    deletions have left. Raises OSError.
    """
    for directory in run_directories(store):
        with contextlib.suppress(BrokenRunError):  # it is shown as broken, and stays until it is deleted
            _remove_expired(directory)
    for directory, path in unfinished(store):
        # The lock is held while a run is created or removed.
        if (lock := directory.acquire(timeout=0)) is not None:
            try:
                folders.remove_if_possible(path)
            finally:
                directory.unlock(lock)


def _remove_expired(directory: RunDirectory) -> None:
    if directory.expired() and (lock := directory.acquire(timeout=0)) is not None:
        try:
            if directory.expired():
                directory.remove()
        finally:
            directory.unlock(lock)
