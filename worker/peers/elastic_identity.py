"""What the tasks of an elastic run must have in common: one may come hours after the others, from another
image. Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Identity:
    """What a task runs. `program` is a digest of the program's source, "" where it is in the image. `gpus`
    counts the GPUs.
    """

    run_id: str
    tensorflow: str
    program: str
    gpus: int

    def to_json(self) -> str:
        """Returns one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Identity | None:
        """Reads the output of `to_json`; None for any other text."""
        try:
            return cls.of(json.loads(text))
        except ValueError:
            return None

    @classmethod
    def of(cls, document: Any) -> Identity | None:
        """Reads the document of `to_json`; None for any other."""
        try:
            return cls(**{each.name: document[each.name] for each in fields(cls)})
        except (KeyError, TypeError):
            return None


def difference(identity: Identity | None, chief: Identity, gpus: int | None = None) -> str:
    """Returns why a worker does not fit its `chief`, "" where it does. It must have as many GPUs as the
    chief, or as the first worker, which has `gpus`.
    """
    if identity is None:
        return "it does not say what it runs"
    if identity.run_id != chief.run_id:
        return "it belongs to another run of this name"
    if identity.tensorflow != chief.tensorflow:
        return f"it has TensorFlow {identity.tensorflow}, and the chief {chief.tensorflow}"
    if identity.program and chief.program and identity.program != chief.program:
        return "its program differs from the chief's"
    if gpus is None and identity.gpus != chief.gpus:
        return f"it has {identity.gpus} GPUs, and the chief {chief.gpus}"
    if gpus is not None and identity.gpus != gpus:
        return f"it has {identity.gpus} GPUs, and the first worker {gpus}"
    return ""


def digest(source: Path | None) -> str:
    """Returns a digest of the files that Python could import from `source`, "" for None."""
    if source is None:
        return ""
    # Here: every supervisor imports this module, and OpenSSL, which comes with it, takes 4 MB.
    import hashlib

    sha = hashlib.sha256()
    for path in sorted(_files(source)):
        sha.update(f"\n{path.relative_to(source)} {path.stat().st_size}\n".encode() + path.read_bytes())
    return sha.hexdigest()[:16]


def _files(source: Path) -> Iterator[Path]:
    for path in source.rglob("*.py"):
        # A ConfigMap's volume has its files twice, under `..data` too.
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(source).parts):
            yield path
