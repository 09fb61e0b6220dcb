"""The code of a class or function that a notebook's cell defines, with what it uses of other cells, as a
module of its own.
"""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import linecache
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any


class NotShippedError(ValueError):
    """The code cannot stand in a module of its own. The text says why, and what to do."""


def module(given: Callable[..., Any], namespace: Mapping[str, Any]) -> str:
    """Returns the text of a module that defines `given`, a class or function of the notebook's `namespace`.

    It has what the code names: imports, other classes and functions of cells, and values that can be
    written down. Raises NotShippedError.
    """
    made = _Module(namespace)
    made.add(given.__name__, given)
    return "".join([*made.imports, *made.values, "\n\n", "\n\n".join(made.definitions)])


class _Module:
    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._imported = _imports(namespace.get("In") or ())
        self._known: set[str] = set()
        self.imports: list[str] = []
        self.values: list[str] = []
        self.definitions: list[str] = []
        """Each behind those that it names, as a base class must be."""

    def add(self, name: str, value: Any) -> None:
        if name in self._known:
            return
        self._known.add(name)
        defined_in_cell = getattr(value, "__module__", None) == "__main__"
        code = inspect.unwrap(value) if callable(value) else value  # of what decorators made of it
        if name in self._imported and not defined_in_cell:
            self.imports.append(self._imported[name])
        elif isinstance(value, types.ModuleType):
            self.imports.append(f"import {value.__name__} as {name}\n")
        elif inspect.isclass(code) or inspect.isfunction(code):
            self._add_code(name, code)
        elif _is_plain(value):
            self.values.append(f"{name} = {value!r}\n")
        elif (place := _place(value)) is not None:
            self.imports.append(f"from {place[0]} import {place[1]} as {name}\n")
        else:
            raise NotShippedError(
                f"it uses {name}, a {type(value).__name__} that a cell has made, and no other process has: "
                "make it inside the class or function, or give it by parameters"
            )

    def _add_code(self, name: str, value: Any) -> None:
        if value.__module__ != "__main__":
            self.imports.append(f"from {value.__module__} import {value.__qualname__} as {name}\n")
            return
        if value.__name__ != name or value.__qualname__ != name:
            raise NotShippedError(
                f"it uses {name}, which is {value.__qualname__}: define it by that name, outside of "
                "functions and classes"
            )
        text = _source(value)
        for used in _globals(compile(text, name, "exec")):
            if used in self._namespace:
                self.add(used, self._namespace[used])
            elif not hasattr(builtins, used) and used != name and not used.startswith("__"):
                raise NotShippedError(f"it uses {used}, which no cell defines: run that cell first")
        self.definitions.append(text)


def _imports(cells: Iterable[str]) -> dict[str, str]:
    """Returns the import statement of each name, as the last of the cells has it: the modules in which a
    library defines what it offers differ from version to version.
    """
    statements: dict[str, str] = {}
    for cell in cells:
        text = "\n".join(line for line in cell.split("\n") if not line.lstrip().startswith(("%", "!")))
        try:
            nodes = list(ast.walk(ast.parse(text)))
        except (SyntaxError, ValueError, RecursionError):
            continue
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom) and not getattr(node, "level", 0):
                for alias in node.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    begins = "" if isinstance(node, ast.Import) else f"from {node.module} "
                    statements[name] = f"{begins}{ast.unparse(ast.Import([alias]))}\n"
    return statements


def _is_plain(value: Any) -> bool:
    """Whether Python reads back what it writes of the value."""
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return False


def _place(value: Any) -> tuple[str, str] | None:
    """Returns module and name of a value that a module has by its own name, as a built-in function."""
    name, home = getattr(value, "__name__", None), getattr(value, "__module__", None)
    if not isinstance(name, str) or not isinstance(home, str) or home == "__main__":
        return None
    return home, name


def _source(value: Any) -> str:
    """Returns the text of a class or function from the cell that defines it."""
    codes = [value.__code__] if inspect.isfunction(value) else list(_codes(value))
    for code in codes:
        try:
            cell = "".join(linecache.getlines(code.co_filename))
            statements = ast.parse(cell).body
        except (SyntaxError, ValueError):
            continue
        for statement in reversed(statements):
            if getattr(statement, "name", None) == value.__name__:
                decorators = getattr(statement, "decorator_list", [])
                first = min([statement.lineno, *(each.lineno for each in decorators)])
                last = statement.end_lineno or first
                if first <= code.co_firstlineno <= last:
                    return "\n".join(cell.split("\n")[first - 1 : last]) + "\n"
    raise NotShippedError(
        f"the text of {value.__name__} is not to be had: write its cell to a file, with `%%writefile "
        "train.py` as the cell's first line, and import it from there"
    )


def _codes(given: type) -> Iterator[types.CodeType]:
    """Yields the code of the class's own methods."""
    for member in vars(given).values():
        function = getattr(member, "fget", None) or getattr(member, "__func__", member)
        if (
            inspect.isfunction(function := inspect.unwrap(function))
            and function.__module__ == given.__module__
        ):
            yield function.__code__


def _globals(code: types.CodeType) -> set[str]:
    """Returns the names that the code takes from its module."""
    loaded: set[str] = set()
    stored: set[str] = set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
            loaded.add(instruction.argval)
        elif instruction.opname == "STORE_NAME":
            stored.add(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            loaded |= _globals(constant)
    return loaded - stored
