"""Finds Python code in a program's train_dataset() that cannot be sent to data workers."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping
from typing import Final

CALLS: Final = ("py_function", "numpy_function", "from_generator", "py_func")
_FIRST: Final = "train_dataset"


def found(files: Mapping[str, bytes]) -> Iterator[str]:
    """Yields a sentence for each call in a .py file that train_dataset() reaches. Runs no code.

    A function is reached where a reached one has its name, called or not, since `map` takes a function.
    Functions of one name are not told apart.
    """
    functions: dict[str, list[tuple[str, ast.AST]]] = {}
    for name, text in files.items():
        if name.endswith(".py"):
            for function in _functions(text):
                functions.setdefault(function.name, []).append((name, function))
    waiting, seen = [_FIRST], {_FIRST}
    while waiting:
        for file, reached in functions.get(waiting.pop(), ()):
            for node in ast.walk(reached):
                used = _name(node)
                if used in CALLS:
                    line = getattr(node, "lineno", 0)
                    yield (
                        f"{file}:{line}: {used} runs Python code, which cannot be sent to the data workers "
                        "of spec.dataService: write it with TensorFlow operations, or remove spec.dataService"
                    )
                elif used in functions and used not in seen:
                    seen.add(used)
                    waiting.append(used)


def _functions(text: bytes) -> Iterator[ast.FunctionDef]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about the program appear where it runs
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # the entrypoint's own file is reported where the run would fail by it
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
