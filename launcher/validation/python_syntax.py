"""A program's source as a syntax tree. No code is run."""

from __future__ import annotations

import ast
import contextlib
import warnings
from collections.abc import Iterator, Mapping


def parse(text: bytes, name: str) -> ast.Module:
    """Returns the tree of a file. Raises SyntaxError, ValueError, RecursionError or MemoryError where it has
    none; warnings about the program appear where it runs.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text, filename=name)


def trees(files: Mapping[str, bytes]) -> Iterator[tuple[str, ast.Module]]:
    """Yields each .py file's name and tree. One that has none is left out: the entrypoint's own file is
    reported where the run would fail by it.
    """
    for name, text in files.items():
        if name.endswith(".py"):
            with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
                yield name, parse(text, name)
