"""The files of a directory by their names: of a path or URL that TensorFlow opens, or of a bucket."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

import tensorflow as tf

from worker.buckets.bucket import Bucket, is_bucket
from worker.buckets.mirror import MirroredFiles
from worker.failures import writing

_UNFINISHED = ".export-"
"""The beginning of the name of a folder that is being written."""


class Files(Protocol):
    """See `TensorFlowFiles` for what the methods do; for a bucket `MirroredFiles` says what differs."""

    root: str
    is_mirrored: bool
    """Whether `local` is another place than `path`."""

    def path(self, name: str) -> str: ...  # noqa: D102
    def local(self, name: str) -> str: ...  # noqa: D102
    def logs(self, name: str) -> str: ...  # noqa: D102
    def read(self, name: str) -> str | None: ...  # noqa: D102
    def write(self, name: str, text: str) -> None: ...  # noqa: D102
    def names(self, folder: str) -> list[str]: ...  # noqa: D102
    def modified(self, name: str) -> float: ...  # noqa: D102
    def is_file(self, name: str) -> bool: ...  # noqa: D102
    def remove(self, names: Iterable[str]) -> None: ...  # noqa: D102
    def remove_folder(self, name: str) -> None: ...  # noqa: D102
    def before_checkpoint(self) -> None: ...  # noqa: D102
    def checkpoint_written(self, name: str) -> None: ...  # noqa: D102
    def fetch_checkpoint(self, name: str) -> bool: ...  # noqa: D102
    def write_folder(self, name: str, write: Callable[[str], None], last: str) -> str: ...  # noqa: D102
    def clear_unfinished(self) -> None: ...  # noqa: D102
    def upload(self, name: str) -> None: ...  # noqa: D102
    def settle(self, give_up: Callable[[], bool] = ...) -> bool: ...  # noqa: D102


class TensorFlowFiles:
    """The files below `root`, a path or a URL that TensorFlow opens.

    Methods that write raise Failure where the directory cannot be written, the others OpError.
    """

    is_mirrored = False

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/") or "/"

    def path(self, name: str) -> str:
        """Returns the path or URL of a file."""
        return f"{self.root.rstrip('/')}/{name}"

    def local(self, name: str) -> str:
        """Returns the path by which TensorFlow reads and writes the file."""
        return self.path(name)

    def logs(self, name: str) -> str:
        """Returns the path of a folder for TensorBoard's files."""
        return self.path(name)

    def read(self, name: str) -> str | None:
        """Returns None for a file that is missing or cannot be read (yet)."""
        try:
            with tf.io.gfile.GFile(self.path(name)) as file:
                return str(file.read())
        except (tf.errors.OpError, UnicodeDecodeError):
            return None

    def write(self, name: str, text: str) -> None:
        """Writes the whole file or nothing."""
        path = self.path(name)
        with writing(path):
            tf.io.gfile.makedirs(path.rpartition("/")[0])
            # The temporary name is constant, so that a killed writer leaves one such file and not many.
            with tf.io.gfile.GFile(path + ".new", "w") as file:
                file.write(text)
            tf.io.gfile.rename(path + ".new", path, overwrite=True)

    def names(self, folder: str) -> list[str]:
        """Returns the files and folders in `folder`; a missing folder has none. A URL's folders may have a
        slash behind them.
        """
        try:
            return [str(name) for name in tf.io.gfile.listdir(self.path(folder) if folder else self.root)]
        except tf.errors.NotFoundError:
            return []

    def modified(self, name: str) -> float:
        """Returns seconds since the epoch."""
        return float(tf.io.gfile.stat(self.path(name)).mtime_nsec / 1e9)

    def is_file(self, name: str) -> bool:
        """Returns whether a file is in the place of a folder."""
        path = self.path(name)
        return bool(tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path))

    def remove(self, names: Iterable[str]) -> None:
        """Removes files, in this order. A missing one is no error."""
        for name in names:
            with writing(self.path(name)), contextlib.suppress(tf.errors.NotFoundError):
                tf.io.gfile.remove(self.path(name))

    def remove_folder(self, name: str) -> None:
        """Removes the folder and all files in it, if it exists."""
        with writing(self.path(name)):
            if tf.io.gfile.exists(self.path(name)):
                tf.io.gfile.rmtree(self.path(name))

    def before_checkpoint(self) -> None:
        """Must be called before a checkpoint is written."""

    def checkpoint_written(self, name: str) -> None:
        """Must be called when the checkpoint is at `local(name)`. `name` is the prefix of its files."""

    def fetch_checkpoint(self, name: str) -> bool:
        """Must be called before a checkpoint is read. Returns whether it may be read."""
        return True

    def write_folder(self, name: str, write: Callable[[str], None], last: str) -> str:
        """Has `write(path)` fill a new folder, then moves it to the place of `name`, where an earlier attempt
        may have written one. Returns the path.
        """
        path = self.path(name)
        new = self.path(f"{_UNFINISHED}{uuid.uuid4().hex[:8]}")
        self.clear_unfinished()
        with writing(path):
            tf.io.gfile.makedirs(new)
        try:
            write(new)
        except BaseException:
            with contextlib.suppress(tf.errors.OpError):
                tf.io.gfile.rmtree(new)
            raise
        with writing(path):
            tf.io.gfile.makedirs(path.rpartition("/")[0])
            if tf.io.gfile.exists(path):
                tf.io.gfile.rmtree(path)
            tf.io.gfile.rename(new, path)
        return path

    def clear_unfinished(self) -> None:
        """Removes what `write_folder` of a process that was killed has left: it may fill the volume."""
        with contextlib.suppress(tf.errors.OpError):
            for leftover in tf.io.gfile.glob(self.path(f"{_UNFINISHED}*")):
                tf.io.gfile.rmtree(leftover)

    def upload(self, name: str) -> None:
        """Must be called when the file is at `local(name)`."""

    def settle(self, give_up: Callable[[], bool] = lambda: False) -> bool:
        """Waits until all is written, or until `give_up()`. Returns whether all is written."""
        return True


def open_files(
    root: str,
    own_folders: Collection[str] = (),
    *,
    patience: float = 0.0,
    notice: Callable[[str], None] = lambda message: None,
    alive: Callable[[], None] = lambda: None,
) -> Files:
    """Returns the files below `root`. `own_folders` are the folders that this task alone writes. The rest is
    for a bucket: see `Bucket`.
    """
    if is_bucket(root):
        return MirroredFiles(
            Bucket(root, patience=patience, notice=notice, alive=alive), own_folders=own_folders
        )
    return TensorFlowFiles(root)
