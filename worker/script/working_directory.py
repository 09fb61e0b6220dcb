"""Where a script's own files go: the first task's to the model directory, the others' to a folder that is
dropped.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

FILES = "files"
"""The folder of the model directory in which the script runs. The runtime writes nothing there."""
_OF_RUNTIME = ("run-state.json*", "checkpoints", "backup", "logs", "export", "fits", "lease*", ".*")
"""What the runtime writes in the model directory."""


def enter(model_dir: str | None, source: Path | None, writes: bool) -> Path:
    """Makes the folder in which the script runs, and enters it. Returns its path.

    The first task's is in the model directory, so that what is written by a relative path, or below
    MODEL_DIR, stays. Any other task gets a copy of what is there already, and MODEL_DIR is a folder of its
    own, too. What lies beside the script can be read there.
    """
    if writes and model_dir is not None:
        root = Path(model_dir)
    else:
        root = Path(tempfile.mkdtemp(prefix="model-"))
        if model_dir is not None:
            _copy(Path(model_dir), root)
            os.environ["MODEL_DIR"] = str(root)
    folder = root / FILES
    folder.mkdir(parents=True, exist_ok=True)
    _link(folder, source)
    os.chdir(folder)
    return folder


def refresh(model_dir: str | None) -> None:
    """Copies what the first task has written since, into this task's own folder."""
    if model_dir is not None:
        _copy(Path(model_dir), Path(os.environ["MODEL_DIR"]))


def leave(folder: Path, source: Path | None) -> None:
    """Removes the links to what lies beside the script."""
    for path in folder.iterdir():
        if path.is_symlink() and source is not None and path.readlink().parent == source:
            path.unlink()


def _link(folder: Path, source: Path | None) -> None:
    leave(folder, source)
    for path in source.iterdir() if source is not None else ():
        link = folder / path.name
        if not path.name.startswith(".") and path.suffix != ".py" and not link.exists():
            link.symlink_to(path)


def _copy(model_dir: Path, folder: Path) -> None:
    of_runtime = shutil.ignore_patterns(*_OF_RUNTIME)

    def ignored(place: str, names: list[str]) -> set[str]:
        links = {name for name in names if Path(place, name).is_symlink()}
        return links | (of_runtime(place, names) if Path(place) == model_dir else set())

    if model_dir.is_dir():
        shutil.copytree(model_dir, folder, ignore=ignored, dirs_exist_ok=True)
