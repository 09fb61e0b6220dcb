"""Descendants of this process that have lost their parent."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def adopt_orphans() -> None:
    """Makes this process the parent of every descendant that loses its own, as process 1 of a container is
    anyway. Linux only.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_children(but: int = 0) -> None:
    """Kills the children of this process, and those that become its children by that, until only `but` is
    left. They are what a training process had started.
    """
    while children := [child for child in _children() if child != but]:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)


def _children() -> list[int]:
    parent_id = os.getpid()
    children = []
    for entry in Path("/proc").iterdir() if sys.platform == "linux" else ():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # pid (command) state parent ...; a command may contain spaces and brackets.
                if int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1]) == parent_id:
                    children.append(int(entry.name))
    return children
