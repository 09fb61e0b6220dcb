"""The program's source: a .py file or a folder -> what a ConfigMap carries."""

from __future__ import annotations

import ast
import difflib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from launcher.errors import Problem, SpecError
from launcher.loading import Loaded

MAX_BYTES: Final = 900_000
"""A ConfigMap holds 1 MiB, names and base64 included; a program is smaller, and data does not belong here."""

SKIPPED: Final = frozenset({"__pycache__", "node_modules", "venv"})
"""Folders that are never part of a program, beside the hidden ones."""


@dataclass(frozen=True)
class Source:
    """The files of a program, by their path below the source directory (`/` between the parts)."""

    files: Mapping[str, bytes]


def read(loaded: Loaded) -> Source | None:
    """The source of the cluster's program; None where it has none.

    Raises SpecError when it cannot be read, is too large, or does not define the entrypoint.
    """
    program = loaded.cluster.spec.program
    if program is None or program.source is None:
        return None

    def refused(field: str, message: str) -> SpecError:
        return SpecError([Problem(loaded.source, 0, 0, f"spec.program.{field}", message)])

    root = loaded.directory / program.source
    if not root.exists():
        raise refused("source", f"no such file or folder: {program.source} (beside the cluster file)")
    files: dict[str, bytes] = {}
    total = 0
    try:
        for name, path in _walk(root):
            total += path.stat().st_size
            if total > MAX_BYTES:
                said = f"over {MAX_BYTES:,} bytes, which a ConfigMap cannot carry: leave data out of it"
                raise refused("source", f"{program.source} has {said}")
            files[name] = path.read_bytes()
    except OSError as error:
        raise refused("source", f"cannot be read: {error.strerror}: {error.filename}") from None
    if not any(name.endswith(".py") for name in files):
        raise refused("source", f"there is no .py file in {program.source}")
    if program.entrypoint is not None and (said := _missing(files, program.entrypoint)):
        raise refused("entrypoint", said)
    return Source(files)


def _walk(root: Path) -> Iterator[tuple[str, Path]]:
    if root.is_file():
        yield root.name, root
        return
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(n for n in inner if n not in SKIPPED and not n.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            if not name.startswith(".") and not name.endswith(".pyc") and path.is_file():
                yield path.relative_to(root).as_posix(), path


def _missing(files: Mapping[str, bytes], entrypoint: str) -> str:
    """What keeps `module:object` from being found in the files; "" for nothing. Runs no code."""
    module, _, name = entrypoint.partition(":")
    stem = module.replace(".", "/")
    found = next((path for path in (f"{stem}.py", f"{stem}/__init__.py") if path in files), None)
    if found is None:
        modules = [path[:-3].replace("/", ".") for path in files if path.endswith(".py")]
        near = difflib.get_close_matches(module, modules, 1)
        hint = f"; did you mean {near[0]}:{name}?" if near else f"; there is {', '.join(modules[:5])}"
        return f"no module {module} in the source{hint}"
    try:
        tree = ast.parse(files[found], filename=found)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        return f"{found}{f':{line}' if line else ''}: not valid Python: {getattr(error, 'msg', error)}"
    defined = set(_names(tree))
    if name in defined or "*" in defined:
        return ""
    near = difflib.get_close_matches(name, defined, 1)
    return f"{found} does not define {name}" + (f"; did you mean {module}:{near[0]}?" if near else "")


def _names(tree: ast.Module) -> Iterator[str]:
    """What the module defines at its top level, conditional branches included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).split(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
