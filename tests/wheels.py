"""Wheels of a few lines, for pip to install from a folder."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path


def wheel(folder: Path, name: str, version: str, requires: Sequence[str] = ()) -> Path:
    """Writes a wheel with one module, whose VERSION is its version. Returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    described = f"{name}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"]
    metadata += [f"Requires-Dist: {each}\n" for each in requires]
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{described}/METADATA": "".join(metadata),
        f"{described}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{described}/RECORD"])
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in {**files, f"{described}/RECORD": record}.items():
            archive.writestr(member, text)
    return path


def digest(path: Path) -> str:
    """Returns what stands behind `--hash=`."""
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
