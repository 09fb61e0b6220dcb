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


def entrypoint_tree(files: Mapping[str, bytes], entrypoint: str) -> tuple[str, ast.Module] | None:
    """Returns the name and the tree of the file that an entrypoint `module:object` is in."""
    stem = entrypoint.partition(":")[0].replace(".", "/")
    return next((each for each in trees(files) if each[0] in (f"{stem}.py", f"{stem}/__init__.py")), None)


def classes(tree: ast.Module, name: str) -> tuple[list[ast.ClassDef], bool]:
    """Returns the class of that name and those that it inherits from, as far as they are in the same file;
    and whether these are all.
    """
    known = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    class_nodes: list[ast.ClassDef] = []
    names, whole = [name], True
    for each in names:
        if each not in known:
            whole = False
        elif known[each] not in class_nodes:
            class_nodes.append(known[each])
            whole = whole and not known[each].decorator_list and not known[each].keywords
            names += [ast.unparse(base) for base in known[each].bases]
    return class_nodes, whole


def lacks_method(files: Mapping[str, bytes], entrypoint: str, name: str) -> bool:
    """Returns whether the entrypoint is a class that certainly has no attribute of that name."""
    named_tree = entrypoint_tree(files, entrypoint)
    if named_tree is None:
        return False
    class_nodes, whole = classes(named_tree[1], entrypoint.partition(":")[2])
    return whole and name not in {
        word
        for node in class_nodes
        for each in ast.walk(node)
        for word in (getattr(each, "name", ""), getattr(each, "id", ""), getattr(each, "attr", ""))
    }
