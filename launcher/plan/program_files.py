"""The program that a run ships."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

MOUNTED_BYTES: Final = 900_000
"""A ConfigMap holds 1 MiB, names and base64 included. A larger program travels as an archive in several."""
MOST_BYTES: Final = 20_000_000
"""Of a program, each of whose pods reads all of it from the API server. Data do not belong in it."""
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The first time that a ZIP file can hold: the same files are the same archive."""


@dataclass(frozen=True)
class ProgramFiles:
    """The files of a program, by their path below the source directory (`/` between the parts)."""

    files: Mapping[str, bytes]

    @property
    def is_mounted(self) -> bool:
        """Whether one ConfigMap holds it, whose keys are the files."""
        return sum(map(len, self.files.values())) <= MOUNTED_BYTES

    @cached_property
    def parts(self) -> Sequence[bytes]:
        """The archive in parts that a ConfigMap can hold; none where the files are mounted."""
        if self.is_mounted:
            return ()
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in sorted(self.files.items()):
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
        whole = buffer.getvalue()
        return [whole[at : at + MOUNTED_BYTES] for at in range(0, len(whole), MOUNTED_BYTES)]

    @property
    def digest(self) -> str:
        """The archive's SHA-256."""
        return hashlib.sha256(b"".join(self.parts)).hexdigest()
