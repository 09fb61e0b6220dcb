"""Where copied files go: the path for them, whole or not at all, and nothing outside it."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from launcher.backends import folders
from launcher.errors import BackendError, ConflictError, Problem, SpecError

_SHOWN: Final = 200
"""Characters of a path in a message."""


def relative(path: str, roots: tuple[str, ...]) -> str:
    """The path below the model directory, "" for all of it; what a task or a summary prints, which begins
    with one of `roots`, is understood. Raises SpecError for what is not below it.
    """
    for root in roots:
        if root and (path == root or path.startswith(f"{root.rstrip('/')}/")):
            path = path[len(root) :].lstrip("/")
            break
    parts = PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts or "\0" in path:
        message = f"expected a path below the run's model directory, such as export; not {path[:80]!a}"
        raise SpecError([Problem("NAME:PATH", 0, 0, "", message)])
    return str(PurePosixPath(*parts)) if parts else ""


def target(given: str, name: str) -> Path:
    """What is to be written: `given`, or in it, where that is a folder, what is called `name`. Raises
    ConflictError where that is there already.
    """
    try:
        path = Path(given).expanduser()
        path = path / name if path.is_dir() else path
        if path.exists() or path.is_symlink():
            raise ConflictError(f"{path} is there already", "Give another path, or remove it first.")
        if not path.parent.is_dir():
            raise ConflictError(f"{path.parent} is no folder", "Make it first, or give another path.")
    except (OSError, RuntimeError) as error:  # a name that is too long; ~ of nobody
        why = getattr(error, "strerror", None) or error
        raise ConflictError(f"{given[:_SHOWN]} cannot be written: {why}", "Give another path.") from error
    return path


@contextlib.contextmanager
def made(path: Path) -> Iterator[Path]:
    """A path beside the one that is wanted, which it becomes at the end; of a failure nothing stays. Raises
    BackendError when it cannot be written.
    """
    temporary = path.with_name(f".tf-launcher-{uuid.uuid4().hex[:8]}")
    try:
        yield temporary
        os.rename(temporary, path)  # noqa: PTH104 - replaces no folder that has files
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        message = f"{path} cannot be written: {error.strerror or error}{where}"
        raise BackendError(message, "Give another path, or free some space there.") from error
    except RecursionError:
        message = f"{path} cannot be written: the folders are nested too deeply"
        raise BackendError(message, "Copy a folder that is further inside.") from None
    finally:
        with contextlib.suppress(OSError):  # where nothing can be written, nothing is left
            if temporary.is_dir() and not temporary.is_symlink():
                folders.remove_if_possible(temporary)
            else:
                temporary.unlink(missing_ok=True)


def is_there(source: Path, root: Path) -> bool:
    """Whether this is a file or a folder, and below `root` by what it is, not by a link's word. Raises
    ConflictError where it cannot be looked at.
    """
    try:
        if not (source.is_dir() or source.is_file()):
            return False
        return source.resolve().is_relative_to(root.resolve())
    except OSError as error:
        message = f"{str(source)[-_SHOWN:]} cannot be read: {error.strerror or error}"
        raise ConflictError(message) from error


def copy(source: Path, path: Path) -> None:
    """A file or a folder of this machine, and of its content files and folders: no link leads out of it, and
    nobody waits for a pipe. Raises OSError.
    """
    if not source.is_dir():
        shutil.copy2(source, path)
        return
    path.mkdir()
    for inner in sorted(source.iterdir()):
        # An old checkpoint may be removed by the training meanwhile.
        with contextlib.suppress(FileNotFoundError):
            if not inner.is_symlink() and (inner.is_dir() or inner.is_file()):
                copy(inner, path / inner.name)
    shutil.copystat(source, path)


def nothing_at(path: str, there: list[str]) -> ConflictError:
    """The error for a path that leads to nothing."""
    shown = f"There is: {', '.join(there[:20])}." if there else "The model directory is empty until now."
    return ConflictError(f"the run's model directory has no {path or 'files'}", shown)
