"""Finds Python code in a program's train_dataset() that cannot be sent to data workers."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Final

from launcher.validation import python_syntax

CALLS: Final = ("py_function", "numpy_function", "from_generator", "py_func")
_FIRST: Final = "train_dataset"


def reached_calls(files: Mapping[str, bytes]) -> Iterator[str]:
    """Yields a sentence for each call in a .py file that train_dataset() reaches. Runs no code.

    A function is reached where a reached one has its name, called or not, since `map` takes a function.
    Functions of one name are not told apart.
    """
    functions: dict[str, list[tuple[str, ast.AST]]] = {}
    for name, tree in python_syntax.trees(files):
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                functions.setdefault(node.name, []).append((name, node))
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


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
