"""How fast this task writes and reads: its own disk, and the model directory or its bucket."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from worker.buckets.bucket import Bucket, is_bucket

_PART: Final = os.urandom(4 << 20)
"""Random, since some file systems compress."""
_MOST_PARTS: Final = 32
_SECONDS: Final = 1.5
"""Of writing, and of reading."""
_ROOM: Final = 8
"""A file takes at most one part of so many of the free space."""
_OBJECTS: Final = 4


def measure_folder(folder: Path) -> dict[str, float]:
    """Returns MB/s by "write" and "read", of one file that is removed again; empty where there is no room, or
    no right to write. What is written is on the disk before the clock stops, and what is read comes from it.
    """
    room = shutil.disk_usage(folder).free // _ROOM // len(_PART)
    most = min(_MOST_PARTS, room)
    if most < 1 or not os.access(folder, os.W_OK):
        return {}
    with tempfile.NamedTemporaryFile(prefix=".tf-launcher-precheck-", dir=folder) as file:

        def write() -> Iterator[None]:
            for _ in range(most):
                file.write(_PART)
                file.flush()
                os.fsync(file.fileno())
                yield

        written, write_rate = _rate(write())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

        def read() -> Iterator[None]:
            file.seek(0)
            for _ in range(written):
                file.read(len(_PART))
                yield

        return {"write": write_rate, "read": _rate(read())[1]}


def measure_url(url: str) -> dict[str, float]:
    """Returns MB/s by "write" and "read" of objects of 4 MiB below the URL, which are removed again.

    Raises OSError, or TensorFlow's OpError, where that fails.
    """
    folder = f"{url.rstrip('/')}/.tf-launcher-precheck"
    name = f"{socket.gethostname()}-{os.getpid()}"
    if is_bucket(url):
        bucket = Bucket(folder)
        return _of_objects(
            lambda number: bucket.write(f"{name}-{number}", _PART),
            lambda number: bucket.read(f"{name}-{number}"),
            lambda number: bucket.remove([f"{name}-{number}"]),
        )
    import tensorflow as tf

    def write(number: int) -> None:
        with tf.io.gfile.GFile(f"{folder}/{name}-{number}", "wb") as file:
            file.write(_PART)

    def read(number: int) -> object:
        with tf.io.gfile.GFile(f"{folder}/{name}-{number}", "rb") as file:
            return file.read()

    return _of_objects(write, read, lambda number: tf.io.gfile.remove(f"{folder}/{name}-{number}"))


def _of_objects(
    write: Callable[[int], object], read: Callable[[int], object], remove: Callable[[int], object]
) -> dict[str, float]:
    written = 0

    def writes() -> Iterator[None]:
        nonlocal written
        for number in range(_OBJECTS):
            write(number)
            written += 1
            yield

    def reads() -> Iterator[None]:
        for number in range(written):
            read(number)
            yield

    try:
        return {"write": _rate(writes())[1], "read": _rate(reads())[1]}
    finally:
        with contextlib.suppress(Exception):  # an error of above is the one to tell
            for number in range(written):
                remove(number)


def _rate(parts: Iterator[None]) -> tuple[int, float]:
    """Takes as many of the parts as come within the time, at least one. Returns their number, and MB/s."""
    began, count = time.perf_counter(), 0
    for _ in parts:
        count += 1
        if time.perf_counter() - began > _SECONDS:
            break
    seconds = max(time.perf_counter() - began, 1e-6)
    return count, count * len(_PART) / seconds / 1e6
