"""The tests that a change can reach: `make test-changed SINCE=main`.

`python -m tests.changed COMMIT` prints their files, for what differs from the commit where the two histories
part, committed or not. Modules are followed by the graph of their imports, and by what they start. A file
that is no module reaches what names it or a folder that it is in; one that nobody names reaches all tests.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Final

from tests.paths import ROOT

Imports = Mapping[str, set[str]]

_PACKAGES: Final = ("launcher", "worker", "manifests", "benchmarks", "releases", "tests")
_STARTS: Final = {
    "launcher.plan.rendering": "manifests",
    "tests.worker.cluster": "worker",
    "tests.worker.forked_tasks": "worker",
    "tests.local.machine": "launcher.backends.local",
    "tests.local.command_line": "launcher",
    "tests.local.cli": "worker",
    "tests.local.whole": "worker",
    "tests.local.test_": "worker",
}
"""What a module whose name begins so loads, or has as a process, and does not import."""
_STARTED: Final = re.compile(r'"-m", "((?:launcher|worker|tests)[a-z_.]*)"')
_EVERYTHING: Final = ("requirements/", "pyproject.toml", "tests/conftest.py")
"""What no import and no name shows to be in use everywhere."""
_ROOMS: Final = ("tests", "unit", "local", "api", "worker")
"""Folders whose names say nothing of who reads what is in them."""
_PROGRAMS: Final = re.compile(r"(.*/programs/)(?:.*/)?(\w+)\.py")
_NEEDS_A_CLUSTER: Final = re.compile(r"tests/(images|kind|peers)/")


def changed_files(since: str) -> list[str]:
    """Of the repository, also those that git does not know yet, and those that are gone."""
    (base,) = _git("merge-base", since, "HEAD")
    known = _git("diff", "--name-only", "--no-renames", base)
    return [*known, *_git("ls-files", "--others", "--exclude-standard")]


def reached(changed: Iterable[str], texts: Mapping[str, str], imports: Imports) -> list[str]:
    """Returns the files of tests that the changed files reach.

    `texts` has the text of each Python file by its path. `imports` is of `imports_of`.
    """
    paths = {_module(path): path for path in texts}
    users: dict[str, set[str]] = {}
    for user, names in imports.items():
        for name in names:
            users.setdefault(name, set()).add(user)
    new: set[str] = set()
    for path in changed:
        first = PurePath(path).parts[0]
        if path.startswith(_EVERYTHING):
            return sorted(filter(_is_test, texts))
        elif path.endswith("/conftest.py"):
            new |= {name for name, other in paths.items() if other.startswith(path[: -len("conftest.py")])}
        elif _module(path) in imports:
            new.add(_module(path))
            if not _is_test(path) and not users.get(_module(path)):
                # A program that tests start, or load, by its path.
                new |= {_module(other) for other in _naming(path, texts)}
        elif first in _PACKAGES and first != "tests":
            new.add(first)  # a template, or a module that is gone
        else:
            new |= {_module(other) for other in _naming(path, texts)} or set(paths)
    modules: set[str] = set()
    while new := new - modules:
        modules |= new
        # Who imports a package may reach all that is in it.
        names = {part for name in new for part in (name, *_packages(name))}
        new = {user for name in names for user in users.get(name, ())}
    return sorted(path for name in modules if _is_test(path := paths.get(name, "")))


def imports_of(texts: Mapping[str, str]) -> Imports:
    """Returns the modules that each module imports, starts, or names as a program."""
    import grimp

    graph = grimp.build_graph(*_PACKAGES, cache_dir=None)
    imports = {name: set(graph.find_modules_directly_imported_by(name)) for name in graph.modules}
    programs = {match[2]: _module(path) for path in texts if (match := _PROGRAMS.fullmatch(path))}
    for path, text in texts.items():
        names = imports.setdefault(_module(path), set())
        names.update(started for prefix, started in _STARTS.items() if _module(path).startswith(prefix))
        if path.startswith("tests/"):
            names.update(_STARTED.findall(text))
            quoted = re.findall(r"[\"'/](\w+)(?:\.py)?[\"'/:]", text)
            beside = re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE) if "/programs/" in path else []
            names.update(programs[word] for word in (*quoted, *beside) if word in programs)
    return imports


def _naming(path: str, texts: Mapping[str, str]) -> set[str]:
    """Returns the tests, and their helpers, that name a file or a folder that it is in."""
    names = (re.escape(name) for name in PurePath(path).parts if name not in _ROOMS)
    word = re.compile(rf"[\"'/]({'|'.join(names)})[\"'/]")
    return {other for other, text in texts.items() if other.startswith("tests/") and word.search(text)}


def _is_test(path: str) -> bool:
    return PurePath(path).name.startswith("test_") and not _NEEDS_A_CLUSTER.match(path)


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _packages(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.splitlines()


def python_files() -> dict[str, str]:
    """Returns the text of each Python file of the repository, by its path."""
    paths = _git("ls-files", "--cached", "--others", "--exclude-standard", "*.py")
    return {path: (ROOT / path).read_text(encoding="utf-8") for path in paths if (ROOT / path).exists()}


def main(arguments: Sequence[str]) -> None:
    (since,) = arguments
    texts = python_files()
    for path in reached(changed_files(since), texts, imports_of(texts)):
        print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
