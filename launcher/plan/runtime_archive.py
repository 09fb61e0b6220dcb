"""The worker runtime as it travels with a run: worker.zip, which `python3` of any image starts."""

from __future__ import annotations

import importlib.util
import io
import re
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from launcher.errors import LauncherError
from launcher.plan.program_files import ProgramFiles
from worker.contract.environment import ARCHIVE, MODULES

KEY: Final = ARCHIVE.rpartition("/")[2]
"""Of the ConfigMap."""
_MAIN: Final = "from_archive.py"
_IMAGES: Final = "data/fashion-mnist"
_FEWER_IMAGES: Final = "data/fashion-mnist-small"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The first time that a ZIP file can hold: the same files are the same archive."""

_IMPORT: Final = rb"^\s*(?:import\s+%s\b|from\s+%s(?:\.\w+)*\s+import\b)"
_RUNTIME: Final = re.compile(_IMPORT % (rb"worker", rb"worker"), re.MULTILINE)
_DATA: Final = re.compile(
    _IMPORT % (rb"worker\.data", rb"worker\.data") + rb"|^\s*from\s+worker\s+import\b.*\bdata\b", re.MULTILINE
)


def is_imported(program: ProgramFiles | None) -> bool:
    """Whether the program imports the runtime itself, as a script does that calls `worker.release`."""
    return _matches(program, _RUNTIME)


def packed(program: ProgramFiles | None) -> bytes:
    """The archive; with images for `worker.data` where the program imports that, fewer than are in the
    launcher's own image, as a ConfigMap holds 1 MiB. Raises LauncherError where this installation lacks them.
    """
    return _packed(_matches(program, _DATA))


def _matches(program: ProgramFiles | None, pattern: re.Pattern[bytes]) -> bool:
    files = program.files if program is not None else {}
    return any(path.endswith(".py") and pattern.search(content) for path, content in files.items())


@cache
def _packed(with_images: bool) -> bytes:
    root = _root()
    files = {path.relative_to(root).as_posix(): path for path in root.rglob("*.py")}
    if with_images:
        images = (root / _FEWER_IMAGES).iterdir()
        # By the names that they have in the image: the program sees no difference.
        files.update((f"{_IMAGES}/{path.name}", path) for path in images if path.is_file())
    contents = {f"worker/{name}": path.read_bytes() for name, path in sorted(files.items())}
    # Small files compress by a quarter better as one.
    modules = _zip(contents, zipfile.ZIP_STORED)
    return _zip({"__main__.py": (root / _MAIN).read_bytes(), MODULES: modules}, zipfile.ZIP_DEFLATED)


def _zip(contents: Mapping[str, bytes], compression: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression, compresslevel=9) as archive:
        for name, content in contents.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, compression)
    return buffer.getvalue()


def _root() -> Path:
    """The package's folder; it is read, and not imported."""
    module_spec = importlib.util.find_spec("worker")
    if (
        module_spec is None
        or module_spec.origin is None
        or not (root := Path(module_spec.origin).parent).joinpath(_MAIN).exists()
    ):
        raise LauncherError(
            "the worker runtime is not installed beside the launcher, and cannot travel with the run",
            "Install tf-launcher anew, or use the launcher's own worker image with spec.runtime: Image.",
        )
    return root
