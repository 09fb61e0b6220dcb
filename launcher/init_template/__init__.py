"""The files that `launcher init` writes."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

from launcher.errors import BackendError, ConflictError
from launcher.object_names import PROGRAM

NAMES: Final = ("cluster.yaml", "train.py")


def write(directory: str) -> list[str]:
    """Writes the starter files into the directory, which is created if it is missing, and returns their
    paths.

    Raises ConflictError, and writes nothing, when one of the files exists already; BackendError when they
    cannot be written.
    """
    folder = Path(directory)
    paths = [folder / name for name in NAMES]
    hint = f"Give another folder: {PROGRAM} init FOLDER"
    try:
        for path in paths:
            if path.exists():
                raise ConflictError(f"{path} is there already", hint)
        folder.mkdir(parents=True, exist_ok=True)
        for path in paths:
            path.write_text((files(__package__) / path.name).read_text(encoding="utf-8"), encoding="utf-8")
    except OSError as error:
        message = f"{error.filename} cannot be written: {error.strerror}"
        raise BackendError(message, hint) from None
    return [str(path) for path in paths]
