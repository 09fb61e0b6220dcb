"""The copies that a task keeps in its own memory, in a folder that outlives the training process.

    backup/ckpt-<epoch>-<steps>     the newest copy, as a checkpoint; a second one while it is written

They are as a model directory's checkpoints in the middle of an epoch, and are read as those.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from worker.checkpoints.model_directory import ModelDirectory
from worker.checkpoints.position import Position
from worker.checkpoints.state_copy import StateCopy
from worker.copies import transfer
from worker.copies.choice import NOTHING, Choice
from worker.process import memory

_SLOTS = 3
"""The newest copy, the one that is being written, and what the training changes of it meanwhile."""
_SPARE = 0.1
"""The share of the memory that is left alone."""
_MEGABYTE = 1 << 20
FIT = "fit"
"""What stands beside the state in a script's copies: the number of its `fit` call."""


class MemoryCopies:
    """The copies of one task in `folder`. Where there is no room for them, `notice` is told once, and `keeps`
    is False from then on. Of the `fit` calls of a script, numbered from 1, only those of `fit` count.
    """

    def __init__(
        self, folder: str, io_device: str | None, notice: Callable[[str], None], fit: int | None = None
    ) -> None:
        self.keeps = True
        self._fit = fit
        self._folder = folder
        self._io_device = io_device
        self._notice = notice

    @property
    def mark(self) -> Mapping[str, Any]:
        """Returns what stands beside the state in each copy."""
        return {} if self._fit is None else {FIT: np.int64(self._fit)}

    @property
    def files(self) -> Path:
        """Returns the folder that `transfer` serves."""
        return Path(self._folder) / "backup"

    def whole(self) -> list[Position]:
        """Returns the positions of the copies that are whole, and removes all else: a writer may have been
        killed.
        """
        directory = self._directory()
        there = [
            each for each in directory.backups() if directory.is_whole(each) and self._is_of(directory, each)
        ]
        names = {name_of(each) for each in there}
        for path in self.files.iterdir() if self.files.is_dir() else ():
            if path.name.partition(".")[0] not in names:
                _remove(path)
        return there

    def only(self, choice: Choice) -> ModelDirectory | None:
        """Removes all copies but the chosen one. Returns the directory that has it, None where it is none."""
        directory = self._directory()
        for each in directory.backups():
            if not choice.holders or each != choice.position:
                self._remove_copy(each)
        return directory if choice.holders else None

    def fetch(self, address: str, position: Position, alive: Callable[[], None]) -> None:
        """Gets the copy at `position` from the task that serves at `address`; to the disk where memory has no
        room. Raises OSError where it cannot be had, or is damaged.
        """
        folder = self._folder

        def place(size: int) -> Path:
            nonlocal folder
            if _room(folder) < size:
                folder = str(Path(tempfile.gettempdir()) / "tf-launcher-copies")
                shutil.rmtree(folder, ignore_errors=True)
            files = Path(folder) / "backup"
            files.mkdir(parents=True, exist_ok=True)
            return files

        transfer.fetch(address, name_of(position), place, alive)
        fetched = ModelDirectory(folder)
        if not fetched.is_whole(position):
            raise OSError("it is damaged")
        if not self._is_of(fetched, position):
            raise OSError("it is of another fit()")
        if folder != self._folder:
            self.only(NOTHING)
            self.keeps = False
        self._folder = folder

    def place(self, size: int) -> Path:
        """Returns the folder for a copy of `size` bytes that another task gives, beside the one before.
        Raises OSError where there is no room.
        """
        if not self._fits(size):
            raise OSError("there is no room in memory")
        self.files.mkdir(parents=True, exist_ok=True)
        return self.files

    def accept(self, name: str) -> None:
        """Keeps the copy of this name, which another task has given, and removes the one before. Raises
        OSError where it is damaged.
        """
        position = position_of(name)
        if not self._directory().is_whole(position):
            self._remove_copy(position)
            raise OSError("it is damaged")
        self.only(Choice(position, (0,)))

    def has_room(self, copy: StateCopy) -> bool:
        """Returns whether there is room for `copy`. Where there is none, no copy is kept from now on."""
        if not self.keeps:
            return False
        size = copy.size
        if not self._fits(size):
            self.keeps = False
            self.only(NOTHING)
            needed, room = (each // _MEGABYTE for each in (_SLOTS * size, max(0, _room(self._folder))))
            self._notice(
                f"no copies of the training are kept in memory: they may take {needed} MB, and {room} MB can "
                "be spared; a larger resources.memory gives room for them"
            )
        return self.keeps

    def write(self, copy: StateCopy, go_on: Callable[[], bool]) -> None:
        """Writes `copy` beside the one before, and then removes that."""
        self._directory().back_up(copy, go_on)

    def _fits(self, size: int) -> bool:
        """Returns whether there is room for copies of `size` bytes, with those that are there."""
        there = sum(path.stat().st_size for path in self.files.rglob("*")) if self.files.is_dir() else 0
        return _SLOTS * size <= _room(self._folder) + there

    def _is_of(self, directory: ModelDirectory, position: Position) -> bool:
        """Returns whether the copy there is of this training."""
        return self._fit is None or directory.beside_at(position, FIT) == self._fit

    def _remove_copy(self, position: Position) -> None:
        # The index goes first: without it there is no copy.
        for path in sorted(self.files.glob(f"{name_of(position)}.*"), reverse=True):
            path.unlink(missing_ok=True)

    def _directory(self) -> ModelDirectory:
        return ModelDirectory(self._folder, self._io_device)


def name_of(position: Position) -> str:
    """Returns the name of the copy."""
    return f"ckpt-{position.epochs}-{position.steps}"


def position_of(name: str) -> Position:
    """Returns the position of the copy of this name."""
    _, epochs, steps = name.split("-")
    return Position(int(epochs), int(steps))


def _room(folder: str) -> int:
    """Returns the bytes that copies in `folder` may still take."""
    disk = os.statvfs(folder)
    room = disk.f_bavail * disk.f_frsize
    left, most = memory.room(), memory.limit()
    return room if left is None or most is None else min(room, left - int(_SPARE * most))


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
