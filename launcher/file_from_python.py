"""Converts a Python class or function to the content of a file that ships it. The program's source is the
file of its module, or the folder around that.
"""

from __future__ import annotations

import atexit
import inspect
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic.alias_generators import to_camel

from launcher import notebook_cells, object_names
from launcher.config.spec import API_VERSION
from launcher.errors import Problem, SpecError

CALLER: Final = ("--", "-m", "worker.function")
"""What the worker runtime runs where the training is a function. `module:function` is appended."""

_PROGRAM: Final = ("model", "train_dataset")
_CELLS: Final = "notebook.py"
"""What has the code of a notebook's cells."""
_SCRIPT: Final = "put it into a module of its own, and import it from there"


@dataclass(frozen=True)
class _Code:
    """The place of the code. `entrypoint` is `module:object` in `source`, a file or folder in `directory`."""

    directory: Path
    source: str
    entrypoint: str


def cluster(given: Callable[..., Any], fields: Mapping[str, Any]) -> tuple[dict[str, Any], Path]:
    """Returns the content of a file, not yet checked, and the directory of its relative paths.

    `fields` are `name`, `source`, `parameters`, and those of `spec` in Python's spelling. Raises SpecError
    for an object that cannot be imported by its module's name, or does not take the parameters.
    """
    left = dict(fields)
    parameters, source, name = left.pop("parameters", {}), left.pop("source", None), left.pop("name", None)
    if not isinstance(parameters, Mapping):
        raise _refused(given, f"parameters: expected a mapping, not {type(parameters).__name__}")
    code = _find(given, None if source is None else os.fspath(source))
    spec = {to_camel(field): value for field, value in left.items()}
    program = {"source": code.source, "parameters": dict(parameters)}
    if inspect.isclass(given):
        program["entrypoint"] = code.entrypoint
    else:
        _check_arguments(given, parameters)
        _call(given, code, spec)
    spec["program"] = {**program, **_mapping(given, spec, "program")}
    metadata = {"name": name or object_names.run_name(given.__name__)}
    document = {"apiVersion": API_VERSION, "kind": "TrainingCluster", "metadata": metadata, "spec": spec}
    return document, code.directory


def called(given: Callable[..., Any]) -> str:
    """Returns the object's name for messages."""
    return f"submit({getattr(given, '__qualname__', type(given).__name__)})"


def _call(given: Callable[..., Any], code: _Code, spec: dict[str, Any]) -> None:
    """Has the tasks that train call the function. A coordinator's workers only run a server."""
    holder = spec
    if spec.get("strategy") == "ParameterServer":
        holder = spec["chief"] = dict(_mapping(given, spec, "chief"))
    if holder.keys() & {"args", "command"}:
        raise _refused(given, "the function takes the place of command and args: leave them out")
    holder["args"] = [*CALLER, code.entrypoint]


def _mapping(given: Callable[..., Any], spec: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    value = spec.get(field, {})
    if not isinstance(value, Mapping):
        raise _refused(given, f"{field}: expected a mapping, not {type(value).__name__}")
    return value


def _find(given: Callable[..., Any], source: str | None) -> _Code:
    """Returns the module and folder from which every task will import it."""
    if not (inspect.isclass(given) or inspect.isfunction(given)):
        raise _refused(given, f"expected a class or a function, not {type(given).__name__}")
    name, module_name = given.__qualname__, given.__module__
    module = sys.modules.get(module_name)
    file = getattr(module, "__file__", None)
    if module_name == "__main__" and file:
        raise _refused(given, f"it is defined in the script that runs: {_SCRIPT}")
    if module_name == "__main__":
        _check_program(given)
        return _of_a_cell(given, vars(module), source)
    if file is None or not file.endswith(".py"):
        raise _refused(given, f"there is no Python file of its module {module_name} to ship: {_SCRIPT}")
    if getattr(module, name, None) is not given:
        message = (
            f"{module_name} does not have it by that name: define it there, outside of functions and classes"
        )
        raise _refused(given, message)
    _check_program(given)
    directory, shipped = _shipped(given, Path(file), source)
    return _Code(directory, shipped, f"{module_name}:{name}")


def _check_program(given: Callable[..., Any]) -> None:
    missing = [method for method in _PROGRAM if not callable(getattr(given, method, None))]
    if inspect.isclass(given) and missing:
        message = "a program has model() and train_dataset(batch_size), and this has no"
        raise _refused(given, f"{message} {' and no '.join(missing)}; a function is the training itself")


def _of_a_cell(given: Callable[..., Any], namespace: Mapping[str, Any], source: str | None) -> _Code:
    """Returns a module with the code of the notebook's cells."""
    if source is not None:
        raise _refused(
            given, "source: it is defined in a notebook, whose code travels by itself: leave it out"
        )
    try:
        text = notebook_cells.module(given, namespace)
    except notebook_cells.NotShippedError as error:
        raise _refused(given, f"it is defined in a notebook: {error}") from None
    directory = Path(tempfile.mkdtemp(prefix="tf-launcher-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    (directory / _CELLS).write_text(text, encoding="utf-8")
    return _Code(directory, _CELLS, f"{Path(_CELLS).stem}:{given.__name__}")


def _check_arguments(given: Callable[..., Any], parameters: Mapping[str, Any]) -> None:
    try:
        inspect.signature(given).bind(**parameters)
    except TypeError as error:
        raise _refused(given, f"it is called with the parameters by name, and cannot be: {error}") from None


def _shipped(given: Callable[..., Any], file: Path, source: str | None) -> tuple[Path, str]:
    """Returns the directory, and the file or folder in it."""
    module = given.__module__
    depth = module.count(".") + (file.name == "__init__.py")
    holder = file.parents[depth]
    if source is None:
        if depth:
            message = f"its module {module} is in a package: give source, the folder to ship ({holder})"
            raise _refused(given, message)
        return file.parent, file.name
    path = Path(source).absolute()
    if path not in (holder, file):
        message = f"source: expected the folder that {module} is imported from, {holder}, not {source}"
        raise _refused(given, message)
    return path.parent, path.name


def _refused(given: Callable[..., Any], message: str) -> SpecError:
    return SpecError([Problem(called(given), 0, 0, "", message)])
