"""Converts a script's path to the content of a file that trains it. What is asked for says the strategy."""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic.alias_generators import to_camel

from launcher import object_names
from launcher.config.spec import API_VERSION
from launcher.errors import Problem, SpecError
from launcher.validation import notebook_to_script
from worker.contract.notebook_lines import NOTEBOOK
from worker.contract.strategies import STRATEGIES, Kind

SUFFIXES: Final = (".py", NOTEBOOK)
MODEL_DIRECTORY: Final = "/model"
"""Where the run keeps its checkpoints, unless `model_dir` says otherwise."""
_WORKERS: Final = 2
"""Of a strategy for several tasks, where nothing else is asked for."""


def is_script(what: object) -> bool:
    """Whether it is the path of a script, and not of a file for the launcher."""
    return isinstance(what, str | os.PathLike) and os.fspath(what).endswith(SUFFIXES)


def cluster(path: str | os.PathLike[str], fields: Mapping[str, Any]) -> tuple[dict[str, Any], Path]:
    """Returns the content of a file, not yet checked, and the directory of its relative paths: the current
    one, or the script's folder where that is elsewhere.

    `fields` are `name`, `args`, `source`, and those of `spec` in Python's spelling. Without a strategy, ps
    makes it ParameterServer, several workers MultiWorkerMirrored, and one task Mirrored. Without a source,
    the script's folder travels where the script imports a file beside it.
    """
    left = dict(fields)
    script = Path(path).absolute()
    here = Path.cwd()
    directory = here if script.is_relative_to(here) else script.parent
    program: dict[str, Any] = {}
    source = left.pop("source", None) or (script.parent if _imports_others(script) else None)
    if source is None:
        program["script"] = _relative(script, directory)
    else:
        folder = Path(source).absolute()
        if not script.is_relative_to(folder):
            raise _refused(script, f"source: expected a folder with {script.name} in it, not {source}")
        directory = here if folder.is_relative_to(here) else folder
        program |= {"source": _relative(folder, directory), "script": script.relative_to(folder).as_posix()}
    if args := left.pop("args", ()):
        program["args"] = [str(each) for each in args]
    name = left.pop("name", None) or object_names.run_name(script.stem)
    given = left.pop("program", {})
    spec = {to_camel(field): value for field, value in left.items() if value is not None}
    document = {
        "apiVersion": API_VERSION,
        "kind": "TrainingCluster",
        "metadata": {"name": name},
        "spec": {
            "strategy": spec.pop("strategy", None) or _strategy(spec),
            "program": {**program, **given},
            "modelDir": spec.pop("modelDir", MODEL_DIRECTORY),
            **spec,
        },
    }
    return _with_tasks(document), directory


def _strategy(spec: Mapping[str, Any]) -> str:
    if spec.get("ps") is not None:
        return "ParameterServer"
    worker = spec.get("worker")
    several = isinstance(worker, Mapping) and worker.get("replicas", 1) not in (0, 1)
    return "MultiWorkerMirrored" if several else "Mirrored"


def _with_tasks(document: dict[str, Any]) -> dict[str, Any]:
    """Adds the tasks without which a strategy for several is none."""
    spec = document["spec"]
    strategy = STRATEGIES.get(spec["strategy"])
    if strategy is not None and strategy.several:
        spec.setdefault("worker", {"replicas": _WORKERS})
    if strategy is not None and strategy.kind is Kind.COORDINATED:
        spec.setdefault("ps", {"replicas": 1})
    return document


def _relative(path: Path, directory: Path) -> str:
    inside = path.relative_to(directory).as_posix()
    return "." if inside == "." else f"./{inside}"


def _imports_others(script: Path) -> bool:
    """Whether the script imports a module that lies beside it. One that cannot be read is told later."""
    try:
        text = script.read_bytes()
        tree = ast.parse(notebook_to_script.script(text, "").text if script.suffix == NOTEBOOK else text)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module.partition(".")[0])
    folder = script.parent
    return any(
        (folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file() for name in names
    )


def _refused(script: Path, message: str) -> SpecError:
    return SpecError([Problem(str(script), 0, 0, "", message)])
