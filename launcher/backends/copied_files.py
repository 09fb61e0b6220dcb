"""Where copied files go: the path for them, whole or not at all, and nothing outside it."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from launcher.errors import ConflictError, LauncherError, Problem, SpecError


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
        said = f"expected a path below the run's model directory, such as export; not {path[:80]!a}"
        raise SpecError([Problem("NAME:PATH", 0, 0, "", said)])
    return str(PurePosixPath(*parts)) if parts else ""


def target(given: str, name: str) -> Path:
    """What is to be written: `given`, or in it, where that is a folder, what is called `name`. Raises
    ConflictError where that is there already.
    """
    path = Path(given).expanduser()
    path = path / name if path.is_dir() else path
    if path.exists() or path.is_symlink():
        raise ConflictError(f"{path} is there already", "Give another path, or remove it first.")
    if not path.parent.is_dir():
        raise ConflictError(f"{path.parent} is no folder", "Make it first, or give another path.")
    return path


@contextlib.contextmanager
def made(path: Path) -> Iterator[Path]:
    """A path beside the one that is wanted, which it becomes at the end; of a failure nothing stays. Raises
    LauncherError when it cannot be written.
    """
    temporary = path.with_name(f".{path.name[:200]}.{uuid.uuid4().hex[:8]}")
    try:
        yield temporary
        os.rename(temporary, path)  # noqa: PTH104 - replaces no folder that has files
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise LauncherError(f"{path} cannot be written: {error.strerror or error}{where}") from error
    finally:
        if temporary.is_dir() and not temporary.is_symlink():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)


def copy(source: Path, path: Path) -> None:
    """A file or a folder of this machine, without its links. Raises OSError."""
    if source.is_dir():

        def links(folder: str, names: list[str]) -> list[str]:
            return [name for name in names if Path(folder, name).is_symlink()]

        shutil.copytree(source, path, ignore=links)
    else:
        shutil.copy2(source, path)


def nothing_at(path: str, there: list[str]) -> ConflictError:
    """The error for a path that leads to nothing."""
    shown = f"There is: {', '.join(there[:20])}." if there else "The model directory is empty until now."
    return ConflictError(f"the run's model directory has no {path or 'files'}", shown)
