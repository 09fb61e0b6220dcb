"""Private names of TensorFlow, Keras and tf_keras are used, and methods of their objects replaced, only in
worker/tf_compat/.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMPAT = ROOT / "worker" / "tf_compat"
OF_PYTHON = {"os._exit", "atexit._run_exitfuncs", "kind._field_defaults"}
BY_NAME = {"getattr", "setattr", "hasattr", "delattr"}


def private_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields line and text of each use of another module's private name."""
    defined_names = {name for node in ast.walk(tree) for name in _defined(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            is_foreign = (
                _is_private(node.attr)
                and node.attr not in defined_names
                and ast.unparse(node) not in OF_PYTHON
            )
        elif isinstance(node, ast.ImportFrom):
            is_foreign = _is_hidden(node.module or "")
        elif isinstance(node, ast.Import):
            is_foreign = any(_is_hidden(alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BY_NAME:
            name = node.args[1] if len(node.args) > 1 else None
            is_foreign = isinstance(name, ast.Constant) and _is_private(str(name.value))
        elif isinstance(node, ast.Dict):
            names = [str(key.value) for key in node.keys if isinstance(key, ast.Constant)]
            is_foreign = any(_is_private(name) and name not in defined_names for name in names)
        else:
            continue
        if is_foreign:
            yield node.lineno, ast.unparse(node)


def _defined(node: ast.AST) -> Iterator[str]:
    """Yields functions, classes, and the attributes that a class sets on itself."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                each = each.value if isinstance(each, ast.Starred) else each
                if isinstance(each, ast.Name):
                    yield each.id
                elif isinstance(each, ast.Attribute) and ast.unparse(each.value) in ("self", "cls"):
                    yield each.attr


def replaced_methods(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields line and text of what sets an attribute past another object's class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, (ast.Store, ast.Del)):
            mapping: ast.AST = node.value
        elif isinstance(node, ast.Attribute) and node.attr in ("update", "setdefault", "pop"):
            mapping = node.value
        else:
            continue
        is_mapping = isinstance(mapping, ast.Attribute) and mapping.attr == "__dict__"
        if is_mapping and not ast.unparse(mapping).startswith("self."):
            yield node.lineno, ast.unparse(node)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _is_hidden(module: str) -> bool:
    first, _, rest = module.partition(".")
    return (first, rest.partition(".")[0]) in {
        ("tensorflow", "python"),
        ("tensorflow", "core"),
        ("keras", "src"),
        ("tf_keras", "src"),
    }


@pytest.mark.parametrize(
    "path", [path for path in sorted((ROOT / "worker").rglob("*.py")) if COMPAT not in path.parents], ids=str
)
def test_no_other_module_uses_a_private_name(path: Path) -> None:
    uses = list(private_names(ast.parse(path.read_text())))
    assert not uses, f"{path.relative_to(ROOT)}: move these into worker/tf_compat/: {uses}"


@pytest.mark.parametrize(
    "path", [path for path in sorted((ROOT / "worker").rglob("*.py")) if COMPAT not in path.parents], ids=str
)
def test_no_other_module_replaces_methods(path: Path) -> None:
    places = list(replaced_methods(ast.parse(path.read_text())))
    assert not places, f"{path.relative_to(ROOT)}: by worker/tf_compat/replaced_methods.py, please: {places}"


@pytest.mark.parametrize(
    "code",
    [
        "metric.__dict__['result'] = f",
        "model.__dict__.update(call=f)",
        "del a.__dict__['b']",
    ],
)
def test_a_replaced_method_is_found(code: str) -> None:
    assert list(replaced_methods(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "strategy._should_use_with_coordinator",
        "model._steps_per_execution.assign(3)",
        "getattr(strategy.extended, '_num_workers', 1)",
        "from tensorflow.python.eager import context",
        "import tf_keras.src.engine.training",
        "from keras.src import backend",
        "optimizer._learning_rate = 3",
        "{'_dense_var_to_tensor': converted}",
    ],
)
def test_a_private_name_is_found(code: str) -> None:
    assert list(private_names(ast.parse(code)))
