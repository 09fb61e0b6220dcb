"""Compiled templates, kept as Python keeps its compiled modules: in `__pycache__` beside them, where that can
be written. Compiling them takes a tenth of the time to render a run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import sys
from importlib.util import cache_from_source
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket


class TemplateCache(jinja2.BytecodeCache):
    """Of what is in it, only what was made of the very same template by the same Jinja2 is used.

    Jinja2's own FileSystemBytecodeCache keeps them in a directory that all users of a machine share, or fails
    where it cannot write.
    """

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        """The file that it is kept in, "" where the template is not a file."""
        return cache_from_source(filename) if filename and sys.implementation.cache_tag else ""

    def get_source_checksum(self, source: str) -> str:
        """Of all that makes the code: the name is not enough, and a time of change can be wrong."""
        return hashlib.sha256(f"{jinja2.__version__}\n{source}".encode()).hexdigest()

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fills the bucket, or leaves it empty."""
        try:
            with Path(bucket.key).open("rb") as file:
                bucket.load_bytecode(file)
        except (OSError, EOFError, ValueError, TypeError, pickle.PickleError):
            # Not there, not ours to read, or cut short.
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keeps the bucket's code. Others may do the same at this moment."""
        if sys.dont_write_bytecode or not bucket.key:
            return
        path = Path(bucket.key)
        temporary_path = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary_path.open("wb") as file:
                bucket.write_bytecode(file)
            temporary_path.replace(path)
        except OSError:
            with contextlib.suppress(OSError):  # a full disk, or one that is only read
                temporary_path.unlink()
