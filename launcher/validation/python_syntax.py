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
    words = {
        word
        for node in class_nodes
        for each in ast.walk(node)
        for word in (getattr(each, "name", ""), getattr(each, "id", ""), getattr(each, "attr", ""))
    }
    return whole and not words & {name, "__getattr__", "setattr"}


def misfits(
    files: Mapping[str, bytes], entrypoint: str, arguments: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
    """Yields `file:line` and name of each method of the entrypoint's class that certainly cannot be called
    with its number of `arguments`.
    """
    named_tree = entrypoint_tree(files, entrypoint)
    if named_tree is None:
        return
    name, tree = named_tree
    class_nodes, _ = classes(tree, entrypoint.partition(":")[2])
    if not class_nodes or class_nodes[0].decorator_list or class_nodes[0].keywords:
        return
    node = class_nodes[0]
    bound = [word for each in node.body for word in _bound(each)]
    for each in node.body:
        if not isinstance(each, ast.FunctionDef) or each.name not in arguments or each.decorator_list:
            continue
        if bound.count(each.name) == 1 and not _takes(each.args, 1 + arguments[each.name]):
            yield f"{name}:{each.lineno}", each.name


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Yields the names that a statement of a class may bind."""
    if isinstance(statement, ast.FunctionDef):
        yield statement.name
        return
    for each in ast.walk(statement):
        yield from (getattr(each, "name", ""), getattr(each, "id", ""))


def _takes(parameters: ast.arguments, count: int) -> bool:
    """Returns whether a function can be called with `count` arguments by position."""
    positional = len(parameters.posonlyargs) + len(parameters.args)
    needed = positional - len(parameters.defaults)
    most = count if parameters.vararg is not None else positional
    return needed <= count <= most and None not in parameters.kw_defaults
