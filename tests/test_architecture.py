"""The rules of who imports whom."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

import launcher

ROOT = Path(__file__).parent.parent
PACKAGES = ("launcher", "worker", "manifests")
VAGUE = {"found", "said", "told", "own", "they"}
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
HEAVY = {"tensorflow", "tf_keras", "numpy", "kubernetes", "pydantic", "jinja2", "yaml", "rich"}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        arguments, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def imported_by(code: str) -> set[str]:
    """Returns the top-level packages that the code imports in a fresh interpreter."""
    report = "import sys; print('\\n' + ' '.join({name.partition('.')[0] for name in sys.modules}))"
    done = run(sys.executable, "-c", f"{code}\n{report}")
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_imports_keep_their_direction() -> None:
    done = run(sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 broken" in done.stdout


def test_no_two_modules_import_each_other() -> None:
    graph = grimp.build_graph("launcher", "worker", "tests", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()  # raises CycleError, which has the circle


@pytest.mark.parametrize(
    "code",
    [
        "import launcher",
        "import worker.contract.records, worker.contract.run_config",
        "from launcher.cli import parser\ntry:\n  parser.main(['--help'])\nexcept SystemExit: pass",
    ],
    ids=["import launcher", "import worker.contract.records, worker.contract.run_config", "--help"],
)
def test_nothing_heavy_is_imported_before_it_is_needed(code: str) -> None:
    assert imported_by(code) & HEAVY == set()


def test_rendering_imports_neither_tensorflow_nor_kubernetes() -> None:
    code = (
        "from launcher.cli import parser\nparser.main(['render', 'tests/specs/valid/parameter-server.yaml'])"
    )
    assert imported_by(code) & {"tensorflow", "tf_keras", "numpy", "kubernetes", "rich"} == set()


def test_the_contract_needs_the_standard_library_only() -> None:
    modules = sorted((ROOT / "worker" / "contract").glob("*.py"))
    imported = {
        name if name.startswith("worker.") else name.partition(".")[0]
        for module in modules
        for node in ast.walk(ast.parse(module.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or "."]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    contract_modules = {f"worker.contract.{module.stem}" for module in modules}
    assert imported <= sys.stdlib_module_names | contract_modules


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_named_for_its_job(path: Path) -> None:
    assert path.stem not in {"utils", "util", "common", "helpers", "misc"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_value_or_a_function_is_named_for_what_it_holds(path: Path) -> None:
    names = {
        name.lstrip("_")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [node.arg]
            if isinstance(node, ast.arg)
            else [node.id]
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            else [node.attr]
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
            else [node.name]
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            else []
        )
    }
    assert not names & VAGUE


@pytest.mark.parametrize("package", ["kubernetes", "local"])
def test_a_list_of_modules_is_whole(package: str) -> None:
    folder = ROOT / "launcher" / "backends" / package
    listed = re.findall(r"^    (\w+)/? +\S", (folder / "__init__.py").read_text(), re.MULTILINE)
    modules = {path.stem for path in folder.iterdir() if not path.stem.startswith("__")}
    assert sorted(listed) == sorted(modules)


def test_no_built_package_is_among_the_sources() -> None:
    listed = run(
        "git", "ls-files", "--cached", "--others", "--exclude-standard", "*.whl", "*.tar.gz", "*.zip"
    )
    assert listed.stdout.split() == []


def test_public_names_are_there_and_sorted() -> None:
    assert launcher.__all__ == sorted(launcher.__all__)
    for name in launcher.__all__:
        assert getattr(launcher, name)
