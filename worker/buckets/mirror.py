"""A directory in a bucket, and what TensorFlow reads and writes of it on local disk.

Small files are read from the bucket and written to it. A checkpoint is written to the local disk, and a
thread uploads it while the training goes on. Everything is written in the order of the calls, and of a
checkpoint the index last. So what the bucket lists at any moment is whole: a checkpoint without its index
is none, and a process that is killed leaves at most such a one.
"""

from __future__ import annotations

import collections
import contextlib
import os
import re
import shutil
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from worker.buckets.bucket import Bucket, BucketError, ChangedError, Item
from worker.contract.environment import Env

_LOGS_SECONDS = 15.0
"""Seconds between two uploads of TensorBoard's files, which grow."""
_LOOK_SECONDS = 0.25
_FETCHES = 5
"""Attempts to download a checkpoint that is written anew meanwhile."""
_DATA = re.compile(r"(.+)\.data-\d{5}-of-\d{5}")


def default_scratch(url: str) -> str:
    """Returns the path of this task's mirror of the URL, the same for each of the task's processes. A volume
    of the user's at /tmp makes more room for it.
    """
    task = os.environ.get(Env.TASK_DIR) or str(os.getpid())
    return f"{tempfile.gettempdir()}/tf-launcher-mirror-{zlib.crc32(f'{task} {url}'.encode()):08x}"


@dataclass(frozen=True)
class _Job:
    """What the thread does next."""

    act: Callable[[Bucket], None]
    is_checkpoint: bool = False


class MirroredFiles:
    """The files below `bucket.url`. Names are relative to it.

    This task alone writes the folders in `own_folders`, whose content is therefore known without asking.
    Errors that a retry does not mend are raised as Failure, those of the thread by the next call, once.
    """

    is_mirrored = True

    def __init__(self, bucket: Bucket, scratch: str | None = None, own_folders: Collection[str] = ()) -> None:
        self.root = bucket.url
        self._bucket = bucket
        self._alive = bucket.alive
        self._own_folders = frozenset(own_folders)
        self._known: dict[str, dict[str, float]] = {}
        self._scratch = Path(scratch or default_scratch(self.root))
        # An earlier process of this task may have left one.
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(parents=True)
        self._jobs: collections.deque[_Job] = collections.deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._error: BucketError | None = None
        self._logs: dict[str, tuple[int, int]] = {}
        self._log_folders: set[str] = set()

    def path(self, name: str) -> str:
        """Returns the URL, for messages."""
        return f"{self.root}/{name}"

    def local(self, name: str) -> str:
        """Returns the path on the local disk."""
        return str(self._scratch / name)

    def logs(self, name: str) -> str:
        """Returns a local folder whose files are uploaded while they grow."""
        self._log_folders.add(name)
        self._start()
        return self.local(name)

    def read(self, name: str) -> str | None:
        """Returns None for a missing file."""
        with self._errors():
            answer = self._bucket.read(name)
        return None if answer is None else answer[0].decode("utf-8", errors="replace")

    def write(self, name: str, text: str) -> None:
        """Writes the whole file or nothing, after all that was given before."""
        self._note(name)
        self._later(_Job(lambda bucket: bucket.write(name, text.encode())))

    def names(self, folder: str) -> list[str]:
        """Returns the files and folders in `folder`."""
        if folder in self._own_folders:
            return sorted(self._content(folder))
        with self._errors():
            items, folders = self._bucket.children(folder)
        return [path.rpartition("/")[2] for path in [*(item.name for item in items), *folders]]

    def modified(self, name: str) -> float:
        """Returns seconds since the epoch."""
        folder, _, last = name.rpartition("/")
        return self._content(folder).get(last, 0.0)

    def is_file(self, name: str) -> bool:
        """Returns whether a file is in the place of a folder, which a bucket allows beside each other."""
        return False

    def remove(self, names: Iterable[str]) -> None:
        """Removes files, in this order. A missing one is no error."""
        given = list(names)
        for name in given:
            folder, _, last = name.rpartition("/")
            self._known.get(folder, {}).pop(last, None)
        self._later(_Job(lambda bucket: bucket.remove(given)))

    def remove_folder(self, name: str, first: str = ".index") -> None:
        """Removes all files below the folder; those whose names end with `first` go before the others."""
        self._known.pop(name, None)

        def remove(bucket: Bucket) -> None:
            bucket.remove(_ordered((item.name for item in bucket.items(name)), first))

        self._later(_Job(remove))
        self.settle()

    def before_checkpoint(self) -> None:
        """Waits until the checkpoint before is uploaded: so at most two are on the local disk."""
        self._wait(lambda: not any(job.is_checkpoint for job in self._jobs))

    def checkpoint_written(self, name: str) -> None:
        """Uploads the files of a checkpoint, whose prefix is `name`."""
        folder, _, prefix = name.rpartition("/")
        files = sorted(path.name for path in (self._scratch / folder).glob(f"{prefix}.*"))
        existed = f"{prefix}.index" in self._content(folder)
        for file in files:
            self._note(f"{folder}/{file}")

        def upload(bucket: Bucket) -> None:
            if existed:
                # It could not be read. With new data behind the old index it would look whole.
                bucket.remove([f"{name}.index"])
            for file in _ordered(files, ".index", last=True):
                bucket.upload(f"{folder}/{file}", self._scratch / folder / file)
            self._forget(folder, prefix)

        self._later(_Job(upload, is_checkpoint=True))

    def fetch_checkpoint(self, name: str) -> bool:
        """Makes the files of a checkpoint be on the local disk. Returns False where the bucket has no whole
        one.
        """
        folder, _, prefix = name.rpartition("/")
        local = self._scratch / folder
        if (local / f"{prefix}.index").exists():
            return True
        with self._errors():
            for _ in range(_FETCHES):
                try:
                    items = [item for item in self._bucket.children(folder)[0] if _is_of(item, name)]
                    index = [item for item in items if item.name == f"{name}.index"]
                    if not index:
                        return False
                    data = [item for item in items if item not in index]
                    if not data:
                        return False
                    self._forget(folder, "")
                    for item in data:
                        self._bucket.download(item, self._scratch / item.name)
                    # It is removed before the data are replaced: if it is still the same, so are they.
                    self._bucket.download(index[0], self._scratch / index[0].name)
                    return True
                except (ChangedError, FileNotFoundError):
                    time.sleep(_LOOK_SECONDS)
        return False

    def write_folder(self, name: str, write: Callable[[str], None], last: str) -> str:
        """Has `write(path)` fill a local folder, and uploads it; the files whose names end with `last` at the
        end. Returns the URL.
        """
        local = self._scratch / name
        shutil.rmtree(local, ignore_errors=True)
        local.mkdir(parents=True)
        write(str(local))
        files = [f"{name}/{path.relative_to(local)}" for path in local.rglob("*") if path.is_file()]

        def upload(bucket: Bucket) -> None:
            bucket.remove(_ordered((item.name for item in bucket.items(name)), last))
            for file in _ordered(files, last, last=True):
                bucket.upload(file, self._scratch / file)

        self._later(_Job(upload))
        self.settle()
        shutil.rmtree(local, ignore_errors=True)
        return self.path(name)

    def clear_unfinished(self) -> None:
        """Does nothing: what a killed process has left is on its own disk."""

    def upload(self, name: str) -> None:
        """Uploads the local file, waits for that and removes it."""
        self._later(_Job(lambda bucket: bucket.upload(name, self._scratch / name)))
        self.settle()
        (self._scratch / name).unlink()

    def settle(self, give_up: Callable[[], bool] = lambda: False) -> bool:
        """Waits until all is in the bucket, TensorBoard's files too, or until `give_up()`. Returns whether it
        is.
        """
        if self._log_folders:
            self._later(_Job(self._upload_logs))
        return self._wait(lambda: not self._jobs, give_up)

    def _content(self, folder: str) -> dict[str, float]:
        """Returns the names in a folder that this task alone writes, and when each was written."""
        if folder not in self._known:
            with self._errors():
                items, _ = self._bucket.children(folder)
            written = {item.name.rpartition("/")[2]: item.modified for item in items}
            self._known[folder] = written
            self._remove_unfinished(folder, written)
        return self._known[folder]

    def _remove_unfinished(self, folder: str, names: dict[str, float]) -> None:
        """Removes what a task has left that was killed before it uploaded an index."""
        data = [(name, match[1]) for name in names if (match := _DATA.fullmatch(name))]
        if unfinished := [name for name, prefix in data if f"{prefix}.index" not in names]:
            self.remove(f"{folder}/{name}" for name in unfinished)

    def _note(self, name: str) -> None:
        folder, _, last = name.rpartition("/")
        if folder in self._own_folders:
            self._content(folder)[last] = time.time()

    def _forget(self, folder: str, prefix: str) -> None:
        """Removes the local files of all checkpoints but one."""
        for path in (self._scratch / folder).glob("*"):
            is_other = path.name != "checkpoint" and path.name.partition(".")[0] != prefix
            if is_other and path.is_file():
                path.unlink(missing_ok=True)

    def _later(self, job: _Job) -> None:
        self._raise()
        with self._changed:
            self._jobs.append(job)
            self._changed.notify_all()
        self._start()

    def _wait(self, is_over: Callable[[], bool], give_up: Callable[[], bool] = lambda: False) -> bool:
        while True:
            with self._changed:
                self._raise()
                if is_over():
                    return True
                if give_up():
                    return False
                self._changed.wait(_LOOK_SECONDS)
            self._alive()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error.as_failure()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except BucketError as error:
            raise error.as_failure() from None

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="upload", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        # Not the main thread's `alive`: that a thread waits says nothing of the training.
        bucket = self._bucket.with_alive(lambda: None)
        try:
            while True:
                with self._changed:
                    if not self._jobs:
                        self._changed.wait(_LOGS_SECONDS)
                    job = self._jobs[0] if self._jobs else _Job(self._upload_logs)
                job.act(bucket)
                with self._changed:
                    if self._jobs and self._jobs[0] is job:
                        self._jobs.popleft()
                    self._changed.notify_all()
        except BucketError as error:
            self._stop(error)
        except OSError as error:
            self._stop(BucketError(f"{self.root}: uploading failed: {error}", is_temporary=False))

    def _stop(self, error: BucketError) -> None:
        """Gives up all that is still to be done: it was to come after what could not be written. The next
        call raises the error, and the one after that begins anew.
        """
        with self._changed:
            self._error, self._thread = error, None
            self._jobs.clear()
            self._known.clear()
            self._changed.notify_all()

    def _upload_logs(self, bucket: Bucket) -> None:
        for folder in list(self._log_folders):
            for path in (self._scratch / folder).rglob("*"):
                if not path.is_file():
                    continue
                name, stat = str(path.relative_to(self._scratch)), path.stat()
                size_and_time = stat.st_size, stat.st_mtime_ns
                if self._logs.get(name) != size_and_time:
                    bucket.upload(name, path)
                    self._logs[name] = size_and_time


def _is_of(item: Item, name: str) -> bool:
    match = _DATA.fullmatch(item.name)
    return item.name == f"{name}.index" or (match is not None and match[1] == name)


def _ordered(names: Iterable[str], end: str, last: bool = False) -> list[str]:
    """Returns the names; those with the ending `end` are first or last."""
    return sorted(names, key=lambda name: (name.endswith(end) == last, name))
