"""Removes runs whose ttlSecondsAfterFinished is over. No process waits for that time: the next command
removes them.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from launcher.backends import folders
from launcher.backends.local.store import BrokenRunError, run_directories, unfinished


def sweep(store: Path) -> None:
    """Removes finished runs whose ttlSecondsAfterFinished is over, and files that killed submissions and
    deletions have left. Raises OSError.
    """
    for directory in run_directories(store):
        with contextlib.suppress(BrokenRunError):  # it is shown as broken, and stays until it is deleted
            if directory.expired():
                with directory.held() as held:
                    if held is not None and directory.expired():
                        directory.remove()
    for directory, path in unfinished(store):
        # The lock is held while a run is created or removed.
        with directory.held() as held:
            if held is not None:
                folders.remove_if_possible(path)
