"""A program's data in a bucket of S3 (`parameters.dataDir`): copied to the local disk before they are read.

TensorFlow 2.21 has no file system for `s3://`, and Python cannot register one. So each task that reads the
data copies all of them, at most as much as `parameters.dataLimitGB` says.
"""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from worker.buckets.bucket import Bucket, BucketError, ChangedError, Item, is_bucket
from worker.contract.environment import Env
from worker.contract.exit_codes import ExitCode
from worker.contract.parameters import DATA_DIRECTORY, DATA_LIMIT, DATA_LIMIT_GB
from worker.failures import Failure, program_error

_GB = 10**9
_MB = 10**6
_AT_ONCE = 4
_SAY_SECONDS = 5.0
_SPARE_BYTES = 100 * _MB
"""What must stay free on the disk."""


def bucket_of(parameters: Mapping[str, Any]) -> str | None:
    """Returns the URL of the data, where that is in a bucket."""
    url = parameters.get(DATA_DIRECTORY)
    return url if isinstance(url, str) and is_bucket(url) else None


def with_local_data(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns what the program is given: the local directory in the place of the URL."""
    url = bucket_of(parameters)
    return parameters if url is None else {**parameters, DATA_DIRECTORY: str(_directory(url))}


def fetch(
    parameters: Mapping[str, Any],
    say: Callable[[str], None],
    *,
    patience: float,
    notice: Callable[[str], None],
    alive: Callable[[], None],
) -> None:
    """Makes the local directory hold what the bucket has; without a bucket it does nothing. Files that an
    earlier process has copied stay. `say` is told how far it is; the rest as in `Bucket`.

    Raises Failure with the bucket and the operation: where the server fails, and where the data are larger
    than the limit or than the room on the disk.
    """
    url = bucket_of(parameters)
    if url is None:
        return
    limit = parameters.get(DATA_LIMIT, DATA_LIMIT_GB) * _GB
    bucket = Bucket(url, patience=patience, notice=notice, alive=alive)
    say(f"listing {url}")
    try:
        listed = _files(url, bucket.items())
        directory = _directory(url)
        lacking = [item for item in listed if not _is_there(item, directory)]
        _check_size(url, listed, lacking, limit, directory)
        _remove_others(directory, {item.name for item in listed})
        _download(bucket, lacking, directory, say, alive)
    except BucketError as error:
        raise error.as_failure() from None
    except (ChangedError, FileNotFoundError) as error:
        message = f"{url}: it was changed while it was copied ({error})"
        raise Failure(message, ExitCode.RETRYABLE) from None


def _directory(url: str) -> Path:
    """Returns the same path for every pod of the run, since one task may read by another's graph."""
    task = os.environ.get(Env.TASK_DIR) or str(os.getpid())
    return Path(tempfile.gettempdir(), f"tf-launcher-data-{zlib.crc32(f'{task} {url}'.encode()):08x}")


def _files(url: str, items: Sequence[Item]) -> list[Item]:
    """Returns the objects that are files. An empty one that others are below stands for a folder."""
    folders = {str(parent) for item in items for parent in PurePosixPath(item.name).parents}
    files = [item for item in items if item.name not in folders and not item.name.endswith("/")]
    for item in items:
        if item.name in folders and item.size:
            raise program_error(f"{url}: {item.name} is a file and a folder, which a disk cannot hold")
        if {".", "..", ""} & set(item.name.rstrip("/").split("/")):
            raise program_error(f"{url}: {item.name} is no path of a file")
    if not files:
        raise program_error(f"{url}: there is no object below it (parameters.{DATA_DIRECTORY})")
    return files


def _is_there(item: Item, directory: Path) -> bool:
    path = directory / item.name
    try:
        stat = path.stat()
    except OSError:
        return False
    return (stat.st_size, stat.st_mtime_ns) == (item.size, _stamp(item))


def _stamp(item: Item) -> int:
    """Returns the time that a copy gets, in nanoseconds: that of the object, which has whole seconds, and a
    number from its ETag in the place of the fraction, for one that was replaced within the same second.
    """
    return int(item.modified) * 10**9 + zlib.crc32(item.e_tag.encode()) % 10**9


def _check_size(
    url: str, listed: Sequence[Item], lacking: Sequence[Item], limit: int, directory: Path
) -> None:
    size, needed = (sum(item.size for item in items) for items in (listed, lacking))
    if size > limit:
        raise program_error(
            f"{url} has {_shown(size)}, and a task copies {_shown(limit)} at most: "
            f"raise parameters.{DATA_LIMIT} where the disk at {tempfile.gettempdir()} has room for that, or "
            f"mount the data as a volume"
        )
    free = shutil.disk_usage(directory.parent).free
    if needed + _SPARE_BYTES > free:
        raise program_error(
            f"{url}: {_shown(needed)} are to be copied, and the disk at {directory.parent} has "
            f"{_shown(free)} free: mount a volume with more room there, or mount the data as a volume"
        )


def _remove_others(directory: Path, names: set[str]) -> None:
    for path in directory.rglob("*"):
        if path.is_file() and str(path.relative_to(directory)) not in names:
            path.unlink()


def _download(
    bucket: Bucket,
    items: Sequence[Item],
    directory: Path,
    say: Callable[[str], None],
    alive: Callable[[], None],
) -> None:
    total, done = sum(item.size for item in items), 0
    over = threading.Event()

    def download(item: Item) -> int:
        if over.is_set():
            return 0
        path = directory / item.name
        part = path.with_name(f".{path.name}.part")
        # Not the main thread's `alive`: the main thread waits for all of these.
        bucket.with_alive(lambda: None).download(item, part)
        os.utime(part, ns=(_stamp(item), _stamp(item)))
        part.replace(path)
        return item.size

    directory.mkdir(parents=True, exist_ok=True)
    spoke = 0.0
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="fetch") as pool:
        waiting = {pool.submit(download, item) for item in items}
        try:
            while waiting:
                if time.monotonic() - spoke >= _SAY_SECONDS:
                    spoke = time.monotonic()
                    say(f"copying {bucket.url}: {_shown(done)} of {_shown(total)}")
                ended, waiting = concurrent.futures.wait(waiting, 0.25)
                done += sum(each.result() for each in ended)
                alive()
        finally:
            over.set()


def _shown(size: int) -> str:
    return (
        f"{size / _GB:.1f} GB" if size >= _GB else f"{size / _MB:.0f} MB" if size >= _MB else f"{size} bytes"
    )
