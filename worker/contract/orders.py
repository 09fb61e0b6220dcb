"""How a command asks a running task for something: by a connection to the task's supervisor.

    -> a line of JSON: {"task": the pod's stable name, "order": STACKS}, or with PROFILE and "steps": 20
    <- empty lines while that takes time; then a line of JSON: {"stacks": text}, {"path": ..., "first": ...,
       "steps": ..., "tasks": [...], "problems": {task: sentence}} or {"problem": sentence}

On Kubernetes the supervisor listens on the pod's own loopback, which nobody reaches but the pod itself and
who may forward a port to it. On this machine, where runs have networks of their own, it is a socket in the
task's directory.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

STACKS: Final = "stacks"
PROFILE: Final = "profile"

MOST_STEPS: Final = 1000
"""Of a profile: TensorFlow keeps it in memory until its end, and nobody ends one that has begun before."""

PORT: Final = 22221
"""Of the pod's loopback: one that programs do not use, and no ephemeral one."""
SOCKET: Final = "orders"
"""The socket's name in the task's directory."""


@contextlib.contextmanager
def socket_path(directory: str | os.PathLike[str]) -> Iterator[str]:
    """Gives a path of the socket. Linux takes 107 characters, and the directory's own may have more."""
    if sys.platform != "linux":
        yield str(Path(directory, SOCKET))
        return
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{SOCKET}"
    finally:
        os.close(folder)
