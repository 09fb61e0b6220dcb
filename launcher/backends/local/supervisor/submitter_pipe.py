"""Pipes whose end of file tells a run's supervisor that the process which submitted it is gone."""

from __future__ import annotations

import os
import select
import threading

_lock = threading.Lock()
_held: list[int] = []
"""The write ends. Nothing is written: the kernel closes them when this process ends."""


def new() -> int:
    """The read end of a new one, for the supervisor; the caller closes its own copy.

    Gives back what the runs that have ended since had: a process may submit thousands.
    """
    with _lock:
        poll = select.poll()
        for write in _held:
            poll.register(write, 0)
        for write, _ in poll.poll(0):  # nobody reads any more
            os.close(write)
            _held.remove(write)
        read, write = os.pipe()
        _held.append(write)
        return read
