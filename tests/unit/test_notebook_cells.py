"""The code of a notebook's class or function as a module: it computes what it does in the notebook."""

from __future__ import annotations

import linecache
import types
from typing import Any

import pytest

from launcher import notebook_cells
from launcher.notebook_cells import NotShippedError


def kernel(*cells: str) -> dict[str, Any]:
    """Returns the variables after the cells, which Python finds again as it does in Jupyter."""
    variables: dict[str, Any] = {"__name__": "__main__", "In": [""]}
    for number, cell in enumerate(cells):
        name = f"<cell {number} of {id(variables)}>"
        linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
        exec(compile(cell, name, "exec"), variables)
        variables["In"].append(cell)
    return variables


def shipped(variables: dict[str, Any], name: str) -> types.SimpleNamespace:
    """Returns the variables of the module that defines `name`."""
    module: dict[str, Any] = {"__name__": "notebook"}
    exec(compile(notebook_cells.module(variables[name], variables), "notebook.py", "exec"), module)
    return types.SimpleNamespace(**module)


def test_what_it_uses_comes_with_it() -> None:
    variables = kernel(
        "import os.path\nimport collections as c\nfrom json import dumps",
        "SIZES = {'a': [1, 2.5], 'b': (None, True)}\nunused = object()",
        "def helper(x):\n    return dumps(c.OrderedDict(x))\n\n\nother = 1",
        "class Base:\n    def join(self):\n        return os.path.join('a', 'b')",
        "raise_ = 1\nclass Program(Base):\n    rate = 0.1\n    half = rate / 2\n\n    @property\n"
        "    def text(self):\n        return [helper(SIZES), self.join(), [len(x) for x in ('a', 'b')]]",
    )
    made = shipped(variables, "Program")
    assert made.Program().text == variables["Program"]().text
    assert made.Program.half == 0.05
    assert not {"unused", "other", "raise_"} & vars(made).keys()


def test_the_newest_definition_counts() -> None:
    variables = kernel("def f():\n    return 1", "def f():\n    return g()", "def g():\n    return 2")
    assert shipped(variables, "f").f() == 2


def test_decorators_and_recursion() -> None:
    variables = kernel(
        "import functools",
        "@functools.lru_cache\n@functools.lru_cache\ndef fib(n):\n"
        "    return n if n < 2 else fib(n - 1) + fib(n - 2)",
        "def even(n): return n == 0 or odd(n - 1)\ndef odd(n): return n != 0 and even(n - 1)\n"
        "def f(n=3):\n    def inner():\n        return even(n) and fib(7) == 13\n    return inner()",
    )
    assert shipped(variables, "f").f(4) is True


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (("data = object()", "def f():\n    return data"), "it uses data, a object that a cell has made"),
        (("def f():\n    return missing",), "it uses missing, which no cell defines: run that cell first"),
        (
            ("def make():\n    def g(): ...\n    return g\ng = make()", "def f():\n    return g()"),
            "it uses g, which is",
        ),
    ],
)
def test_what_no_other_process_has_is_refused(cells: tuple[str, ...], message: str) -> None:
    variables = kernel(*cells)
    with pytest.raises(NotShippedError) as raised:
        notebook_cells.module(variables["f"], variables)
    assert message in str(raised.value)


def test_code_whose_text_is_lost_is_refused() -> None:
    variables: dict[str, Any] = {"__name__": "__main__"}
    exec("def f(): ...", variables)
    with pytest.raises(NotShippedError, match=r"%%writefile train\.py"):
        notebook_cells.module(variables["f"], variables)
