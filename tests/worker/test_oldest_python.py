"""The worker runtime runs on Python 3.9, which images with TensorFlow 2.16 to 2.20 may have."""

from __future__ import annotations

import ast
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT
from worker.from_archive import OLDEST

MODULES = sorted((ROOT / "worker").rglob("*.py"))
MODULE_IDS = [str(path.relative_to(ROOT)) for path in MODULES]
# Later arguments and functions, which ruff does not find by its target version.
LATER_ARGUMENTS = {
    "zip": {"strict"},
    "dataclass": {"kw_only", "slots"},
    "field": {"kw_only"},
    "ThreadPoolExecutor.shutdown": {"cancel_futures"},
}
LATER_IMPORTS = {
    "typing": {
        "ParamSpec",
        "TypeAlias",
        "TypeGuard",
        "Concatenate",
        "Self",
        "Never",
        "override",
        "assert_never",
    },
    "itertools": {"pairwise", "batched"},
    "contextlib": {"aclosing", "chdir"},
    "enum": {"StrEnum"},
    "datetime": {"UTC"},
    "types": {"NoneType", "EllipsisType", "UnionType"},
    "inspect": {"get_annotations"},
}
ONE_ARGUMENT = {"format_exception", "format_exception_only", "print_exception"}
"""Functions of traceback: until Python 3.10 they took the class, the error and its traceback."""


def later(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            given = {keyword.arg for keyword in node.keywords}
            if arguments := given & LATER_ARGUMENTS.get(name, set()):
                yield f"line {node.lineno}: {name}({', '.join(map(str, arguments))})"
            if name in ONE_ARGUMENT and len(node.args) == 1:
                yield f"line {node.lineno}: {name} of one argument"
            if name in ("isinstance", "issubclass") and isinstance(node.args[1], ast.BinOp):
                yield f"line {node.lineno}: {name} with |"
        elif isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names} & LATER_IMPORTS.get(node.module or "", set())
            yield from (f"line {node.lineno}: {node.module}.{name}" for name in sorted(names))
        elif isinstance(node, ast.Attribute):
            module = ast.unparse(node.value)
            if node.attr in LATER_IMPORTS.get(module, set()):
                yield f"line {node.lineno}: {module}.{node.attr}"


@pytest.mark.parametrize("path", MODULES, ids=MODULE_IDS)
def test_a_module_keeps_to_what_python_3_9_has(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text, feature_version=OLDEST)
    assert list(later(tree)) == []
    annotated = any(
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)
        for function in ast.walk(tree)
        for part in _annotations(function)
        for node in ast.walk(part)
    )
    assert not annotated or "from __future__ import annotations" in text


def _annotations(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation is not None:
        yield node.annotation
    elif isinstance(node, ast.FunctionDef) and node.returns is not None:
        yield node.returns


def test_the_check_finds_what_came_later() -> None:
    code = "zip(a, b, strict=True)\nisinstance(a, int | str)\nfrom typing import Self\nformat_exception(e)"
    assert len(list(later(ast.parse(code)))) == 4


def test_the_first_module_is_read_by_much_older_ones() -> None:
    """They can then report that they are too old."""
    ast.parse((ROOT / "worker" / "from_archive.py").read_text(), feature_version=(3, 6))


IMPORTS = """
import importlib, pkgutil, sys
import worker
def missing(name):
    raise ImportError(name)
count = 0
for found in pkgutil.walk_packages(worker.__path__, "worker.", onerror=missing):
    if found.name == "worker.__main__":
        continue
    try:
        importlib.import_module(found.name)
        count += 1
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] not in ("tensorflow", "numpy"):
            raise
print(count)
"""


def test_python_3_9_imports_it() -> None:
    """It runs where there is one on the PATH; `make test-tensorflow VERSIONS=2.20@3.9` trains with it."""
    python = shutil.which("python3.9")
    probe = python and subprocess.run([python, "-V"], capture_output=True, timeout=60, check=False)
    if not probe or probe.returncode:
        pytest.skip("no python3.9 on the PATH")
    done = subprocess.run(
        [str(python), "-W", "error", "-c", IMPORTS], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20
