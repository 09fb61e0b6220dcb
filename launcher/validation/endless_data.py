"""Finds out that a program's train_dataset() returns data without an end, of which an epoch must be told."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from launcher.validation import python_syntax

_METHOD: Final = "train_dataset"
_KEEP: Final = re.compile(
    "(padded_|ragged_|re|un)?batch|cache|enumerate|filter|flat_map|interleave|map|prefetch|shard|shuffle|skip"
    "|window|with_options"
)
"""Methods of tf.data.Dataset after which what had no end has none. apply() may end it."""

Known = dict[str, str]
"""The variables that hold data without an end, each with its place and the reason."""
Helpers = Mapping[str, tuple[str, ast.FunctionDef]]
"""The functions and methods of the program's own whose name no other has, each with its file."""


def reason(files: Mapping[str, bytes], entrypoint: str) -> str:
    """Returns where the data get no end, and by what; "" where that is not certain. Runs no code."""
    tree = python_syntax.entrypoint_tree(files, entrypoint)
    method = None if tree is None else _method(tree[1], entrypoint.partition(":")[2])
    return "" if tree is None or method is None else _of_function(method, tree[0], _helpers(files))


def _helpers(files: Mapping[str, bytes]) -> Helpers:
    defined: dict[str, list[tuple[str, ast.FunctionDef]]] = {}
    for path, tree in python_syntax.trees(files):
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and _decorators(node) <= {"staticmethod", "classmethod"}:
                defined.setdefault(node.name, []).append((path, node))
    return {name: definitions[0] for name, definitions in defined.items() if len(definitions) == 1}


def _decorators(function: ast.FunctionDef) -> set[str]:
    return {ast.unparse(each) for each in function.decorator_list}


def _of_function(function: ast.FunctionDef, path: str, helpers: Helpers) -> str:
    """Returns the place where what the function returns gets no end; "" where it may have one."""
    if any(isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(function)):
        return ""
    others = {name: helper for name, helper in helpers.items() if helper[1] is not function}
    returned = list(_returned(function.body, {}, path, others))
    return returned[0] if returned and all(returned) else ""


def _method(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """Returns the method of the class, or of one that it inherits from in the same file."""
    for each in python_syntax.classes(tree, name)[0]:
        for node in each.body:
            if isinstance(node, ast.FunctionDef) and node.name == _METHOD:
                return node
    return None


def _returned(body: Sequence[ast.stmt], known: Known, path: str, helpers: Helpers) -> Iterator[str]:
    """Yields for each return the place; "" where what is returned may end. It adds to `known`."""
    for node in body:
        if isinstance(node, ast.Return):
            yield _place(node.value, known, path, helpers)
        elif (
            isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
        ):
            known[node.targets[0].id] = _place(node.value, known, path, helpers)
        elif isinstance(node, ast.With):
            yield from _returned(node.body, known, path, helpers)
        elif isinstance(node, ast.If):
            branches = [dict(known), dict(known)]
            for branch, inner in zip(branches, (node.body, node.orelse), strict=True):
                yield from _returned(inner, branch, path, helpers)
            for each in {*branches[0], *branches[1]}:
                places = [branch.get(each, "") for branch in branches]
                known[each] = places[0] if all(places) else ""
        else:
            for part in ast.walk(node):
                if isinstance(part, ast.Return) and not isinstance(node, ast.FunctionDef | ast.ClassDef):
                    yield ""
                elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                    known[part.id] = ""


def _place(value: ast.expr | None, known: Known, path: str, helpers: Helpers) -> str:
    if isinstance(value, ast.Name):
        return known.get(value.id, "")
    if not isinstance(value, ast.Call):
        return ""
    called = value.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    if name == "DatasetCreator":
        return f"{path}:{value.lineno}: a DatasetCreator has no end"
    if name in helpers and name not in known and _is_own(called, helpers[name][0]):
        file, function = helpers[name]
        return _of_function(function, file, helpers)
    if not isinstance(called, ast.Attribute):
        return ""
    if name == "repeat" and not value.keywords and (not value.args or _is_endless(value.args[0])):
        return f"{path}:{value.end_lineno}: .repeat() repeats the data without an end"
    return _place(called.value, known, path, helpers) if _KEEP.fullmatch(name) else ""


def _is_own(called: ast.expr, file: str) -> bool:
    """Returns whether it is a function by its name, or one of the program or of its module in `file`."""
    if isinstance(called, ast.Name):
        return True
    owner = called.value if isinstance(called, ast.Attribute) else None
    return isinstance(owner, ast.Name) and owner.id in ("self", "cls", file.rpartition("/")[2][:-3])


def _is_endless(count: ast.expr) -> bool:
    return ast.unparse(count) in ("None", "-1")
