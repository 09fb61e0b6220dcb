"""Removes folders that a program has filled, however deep they are."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path


def remove(path: Path) -> None:
    """Raises OSError where something of it stays, FileNotFoundError where there is nothing."""
    try:
        shutil.rmtree(path)
    except RecursionError:
        # Before 3.13 Python takes a call for each level, and may make a thousand.
        subprocess.run(["rm", "-rf", "--", str(path)], stderr=subprocess.DEVNULL, check=False)
        if os.path.lexists(path):
            raise OSError(errno.ENOTEMPTY, "it cannot be removed", str(path)) from None


def remove_if_possible(path: Path) -> None:
    """As much of it as can be removed."""
    try:
        shutil.rmtree(path, ignore_errors=True)
    except RecursionError:
        subprocess.run(["rm", "-rf", "--", str(path)], stderr=subprocess.DEVNULL, check=False)
