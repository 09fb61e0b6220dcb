"""Reads the program's source, a .py file or a folder, into the files of a ConfigMap."""

from __future__ import annotations

import ast
import contextlib
import os
import posixpath
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from launcher.config.spec import Program, Spec
from launcher.errors import Problem, SpecError
from launcher.lists_and_counts import nearest
from launcher.plan import topology
from launcher.plan.program_files import MOST_BYTES, MOUNTED_BYTES, ProgramFiles
from launcher.validation import (
    endless_data,
    keras_options,
    notebook_to_script,
    parameter_names,
    python_in_data,
    python_syntax,
)
from launcher.validation.loader import Loaded
from worker.contract.notebook_lines import NOTEBOOK
from worker.contract.program_methods import SIGNATURES, argument_count
from worker.contract.strategies import STRATEGIES, Kind

SKIPPED: Final = frozenset({"__pycache__", "node_modules", "venv"})
"""Folders that are never part of a program, beside the hidden ones."""
_PREDICTED: Final = "predict_dataset"

MAX_DEPTH: Final = 60
"""Levels of nested folders."""


def read(loaded: Loaded) -> ProgramFiles | None:
    """Returns the source of the cluster's program; None where it has none.

    Raises SpecError when it cannot be read, is too large, is outside of the cluster file's folder (also
    through a link), or does not define the entrypoint; also where a parameter is misspelt or an option of
    Keras cannot work.
    """
    files, wrong = _checked(loaded)
    if wrong:
        raise SpecError(wrong)
    return None if files is None else ProgramFiles(files)


def problems(loaded: Loaded) -> list[Problem]:
    """Returns what `read` would raise."""
    return _checked(loaded)[1]


def _checked(loaded: Loaded) -> tuple[dict[str, bytes] | None, list[Problem]]:
    program = loaded.cluster.spec.program
    if program is None or program.shipped is None:
        return None, []
    here = ("spec", "program", "script" if program.source is None else "source")
    try:
        files = _files(loaded, program.shipped)
    except _RefusedError as error:
        return None, [loaded.problem(here, str(error))]
    program_problems: list[Problem] = []
    if (book := _notebook(program, files)) is not None:
        try:
            files = _with_script(files, book)[0]
        except notebook_to_script.NotebookError as error:
            return None, [loaded.problem(("spec", "program", "script"), f"{book}: {error}")]
    missing = _missing(files, program.entrypoint) if program.entrypoint is not None else ""
    if missing:
        program_problems.append(loaded.problem(("spec", "program", "entrypoint"), missing))
    if program.entrypoint is not None and not missing:
        program_problems += [
            loaded.problem(("spec", "program", "entrypoint"), message)
            for message in _wrong_methods(files, program.entrypoint, loaded.cluster.spec.mode)
        ]
    if program.script_file is not None and (wrong := _wrong_script(files, program.script_file)):
        program_problems.append(loaded.problem(("spec", "program", "script"), wrong))
    if program.entrypoint is not None:
        parameters = ("spec", "program", "parameters")
        names = parameter_names.misspelt(program.parameters, files)
        program_problems += [loaded.problem((*parameters, name), message) for name, message in names]
    if program.trained is not None and not missing and _is_coordinated(loaded.cluster.spec):
        options = keras_options.unsupported(files, program.keras == 3)
        program_problems += [loaded.problem(here, message) for message in options]
    if not ProgramFiles(files).is_mounted:
        program_problems += [
            loaded.problem(
                here,
                f"{program.shipped} has over {MOUNTED_BYTES:,} bytes, which the runtime unpacks, and the "
                f"{role.name} runs without it: give args: [--, SCRIPT] in the place of its command",
            )
            for role in topology.build(loaded.cluster).roles
            if role.runs_code and not role.uses_runtime
        ]
    if loaded.cluster.spec.data_service is not None and loaded.cluster.spec.mode == "Train" and not missing:
        program_problems += [loaded.problem(here, message) for message in python_in_data.reached_calls(files)]
    if program.entrypoint is not None and loaded.cluster.spec.mode == "Train" and not missing:
        steps = ("spec", "program", "parameters", "stepsPerEpoch")
        endless = "" if steps[-1] in program.parameters else endless_data.reason(files, program.entrypoint)
        if endless:
            advice = "give the number of steps of an epoch, or let train_dataset() return one pass"
            program_problems.append(loaded.problem(steps, f"needed: {endless}: {advice}"))
    return files, program_problems


def _wrong_methods(files: Mapping[str, bytes], entrypoint: str, mode: str) -> Iterator[str]:
    """Yields what the methods of the entrypoint's class certainly lack, as the run would say it."""
    if mode == "Predict" and python_syntax.lacks_method(files, entrypoint, _PREDICTED):
        yield f"{entrypoint} has no {SIGNATURES[_PREDICTED]}, which mode: Predict needs"
    kind = entrypoint.partition(":")[2]
    counts = {name: argument_count(name) for name in SIGNATURES}
    for place, name in python_syntax.misfits(files, entrypoint, counts):
        yield f"{place}: {kind}.{name} must be callable as {SIGNATURES[name]}"


def notices(loaded: Loaded) -> list[str]:
    """Returns what of a notebook is not in its script."""
    program = loaded.cluster.spec.program
    if program is None or program.shipped is None:
        return []
    with contextlib.suppress(_RefusedError, notebook_to_script.NotebookError):  # which are told by `read`
        files = _files(loaded, program.shipped)
        if (book := _notebook(program, files)) is not None:
            return [f"{book}: {notice}" for notice in _with_script(files, book)[1]]
    return []


def _notebook(program: Program, files: Mapping[str, bytes]) -> str | None:
    """Returns the path of the notebook that is the run's script; None where that is a script already."""
    path = (program.script_file or "").removesuffix(".py")
    return path if path.endswith(NOTEBOOK) and path in files else None


def _with_script(files: Mapping[str, bytes], book: str) -> tuple[dict[str, bytes], list[str]]:
    """Returns the files with the script in the place of the notebook, and what was left out. Raises
    NotebookError.
    """
    made = notebook_to_script.script(files[book], posixpath.basename(book))
    folder = posixpath.dirname(book)
    written = {posixpath.join(folder, name): text.encode() for name, text in made.files.items()}
    others = {name: content for name, content in files.items() if name != book}
    return {**others, **written, f"{book}.py": made.text.encode()}, made.notices


def _is_coordinated(spec: Spec) -> bool:
    """Returns whether workers share variables."""
    return STRATEGIES[spec.strategy].kind is Kind.COORDINATED


class _RefusedError(Exception):
    """The source is wrong; the text says why."""


def _files(loaded: Loaded, source: str) -> dict[str, bytes]:
    root = loaded.directory / source
    files: dict[str, bytes] = {}
    total = 0
    try:
        # It raises where the name is too long, which `exists` of some Pythons takes for a missing file.
        root.stat()
        allowed = None if loaded.allow_outside else loaded.directory.resolve()
        _check_inside(root, source, allowed)
        for name, path in _walk(root):
            _check_inside(path, f"{source} has {name}, which", allowed)
            total += path.stat().st_size
            if total > MOST_BYTES:
                message = "leave data out of it, or have the tasks fetch it (source.git, source.archive)"
                raise _RefusedError(f"{source} has over {MOST_BYTES:,} bytes: {message}")
            files[name] = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise _RefusedError(f"no such file or folder: {_shown(source)} (beside the cluster file)") from None
    except (OSError, ValueError, RuntimeError) as error:
        # Python before 3.13 raises RuntimeError for a loop of links.
        message = str(getattr(error, "strerror", None) or error)
        where = getattr(error, "filename", None)
        raise _RefusedError(
            f"cannot be read: {message}" + (f": {_shown(str(where))}" if where else "")
        ) from None
    if not any(name.endswith((".py", NOTEBOOK)) for name in files):
        raise _RefusedError(f"there is no .py file in {source}")
    return files


def _check_inside(path: Path, called: str, allowed: Path | None) -> None:
    """Refuses files outside of the cluster file's folder. A cluster file is often written by somebody else,
    and must not make the launcher ship other files.
    """
    if allowed is None or (target := path.resolve()).is_relative_to(allowed):
        return
    links = [part for part in (path, *path.parents) if part.is_symlink()]
    by = f"by the link {_shown(str(links[-1]))} " if links else ""
    where = "is" if called == str(target) else f"is {by}{_shown(str(target))},"
    message = f"{where} outside the cluster file's folder {allowed}"
    raise _RefusedError(f"{called} {message}: copy it there, or give --allow-outside where that is meant")


def _walk(root: Path) -> Iterator[tuple[str, Path]]:
    if root.is_file():
        yield root.name, root
        return
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        inside = folder.relative_to(root)
        if len(inside.parts) > MAX_DEPTH:
            raise _RefusedError(f"over {MAX_DEPTH} folders in one another: {_shown(inside.as_posix())}")
        inner = []
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            path = folder / entry.name
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                inner += [path] if entry.name not in SKIPPED else []
            elif not entry.name.endswith(".pyc") and path.is_file():
                name = path.relative_to(root).as_posix()
                if not name.isprintable():
                    # This also covers names with bytes that are not UTF-8, which no object can hold.
                    raise _RefusedError(f"a file's name is not printable text: {_shown(name)}: rename it")
                yield name, path
        waiting += reversed(inner)


def _shown(name: str) -> str:
    shown = name if name.isprintable() else ascii(name)[1:-1]
    return shown if len(shown) <= 200 else f"{shown[:197]}..."


def _missing(files: Mapping[str, bytes], entrypoint: str) -> str:
    """Returns why `module:object` cannot be found in the files; "" where it can. Runs no code."""
    module, _, name = entrypoint.partition(":")
    stem = module.replace(".", "/")
    module_file = next((path for path in (f"{stem}.py", f"{stem}/__init__.py") if path in files), None)
    if module_file is None:
        modules = [path[:-3].replace("/", ".") for path in files if path.endswith(".py")]
        near = nearest(module, modules)
        hint = f"; did you mean {near}:{name}?" if near else f"; there is {', '.join(modules[:5])}"
        return f"no module {module} in the source{hint}"
    try:
        tree = _tree(files, module_file)
    except _RefusedError as error:
        return str(error)
    defined = set(_names(tree))
    if name in defined or "*" in defined:
        return ""
    near = nearest(name, defined)
    return f"{module_file} does not define {name}" + (f"; did you mean {module}:{near}?" if near else "")


def _wrong_script(files: Mapping[str, bytes], script: str) -> str:
    """Returns why the script cannot be run; "" where it can. Runs no code."""
    if script not in files:
        script = script.removesuffix(".py") if script.endswith(f"{NOTEBOOK}.py") else script
        scripts = [path for path in files if path.endswith((".py", NOTEBOOK))]
        near = nearest(script, scripts)
        hint = f"; did you mean {near}?" if near else f"; there is {', '.join(scripts[:5])}"
        return f"no file {_shown(script)} in the source{hint}"
    try:
        _tree(files, script)
    except _RefusedError as error:
        return str(error)
    return ""


def _tree(files: Mapping[str, bytes], path: str) -> ast.Module:
    try:
        return python_syntax.parse(files[path], path)
    except (RecursionError, MemoryError):
        raise _RefusedError(f"{path}: not valid Python: nested too deeply") from None
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise _RefusedError(
            f"{path}{f':{line}' if line else ''}: not valid Python: {getattr(error, 'msg', error)}"
        ) from None


def _names(tree: ast.Module) -> Iterator[str]:
    """Yields the names that the module defines at its top level, conditional branches included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).split(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
