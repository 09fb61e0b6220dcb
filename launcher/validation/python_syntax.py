"""A program's source as a syntax tree. No code is run."""

from __future__ import annotations

import ast
import warnings


def parse(text: bytes, name: str) -> ast.Module:
    """Returns the tree of a file. Raises SyntaxError, ValueError, RecursionError or MemoryError where it has
    none; warnings about the program appear where it runs.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text, filename=name)


def parse_or_none(text: bytes, name: str) -> ast.Module | None:
    """Returns the tree of a file; None where it has none: the entrypoint's own file is reported where the run
    would fail by it.
    """
    try:
        return parse(text, name)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
