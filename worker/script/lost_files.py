"""Tells of what a script writes where it is lost with the pod."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_MOST = 5
"""Folders that are told."""
_WRITES = os.O_WRONLY | os.O_RDWR


def tell(kept: Sequence[Path], notice: Callable[[str], None]) -> None:
    """Has `notice` called from now on for each folder in which Python writes a file, a few at most. What lies
    below a folder of `kept` or on a volume stays; what is temporary, hidden or Python's own is not meant to.
    """
    stays = [*kept, *map(Path, (tempfile.gettempdir(), "/dev", "/proc", "/sys", sys.prefix))]
    folders = [each.resolve() for each in stays]
    known: set[Path] = set()

    def written(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or len(known) == _MOST or not (arguments[2] or 0) & _WRITES:
            return
        if not isinstance(arguments[0], (str, bytes, os.PathLike)):
            return
        path = Path(os.path.realpath(os.fsdecode(arguments[0])))
        folder = path.parent
        if folder in known or any(path.is_relative_to(each) for each in folders) or _is_left_out(path):
            return
        known.add(folder)
        notice(
            f"the script writes {path}, which is lost with the pod: write by a relative path, below "
            'os.environ["MODEL_DIR"], or on a volume'
        )

    sys.addaudithook(written)


def _is_left_out(path: Path) -> bool:
    hidden = any(part.startswith((".", "__pycache__")) for part in path.parts)
    return hidden or any(os.path.ismount(each) for each in path.parents[:-1])
