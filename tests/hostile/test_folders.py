"""`python -m launcher` in a folder with hostile files imports none of them, as far as the launcher can
prevent it. Tests may only add to the list.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile.servers import GOOD, ROOT

MODULES = [
    "argparse", "gc", "typing", "json", "yaml", "pydantic", "pydantic_core", "jinja2", "rich", "kubernetes",
    "urllib3", "ssl", "socket", "subprocess", "threading", "tempfile", "dataclasses", "enum", "pathlib",
    "uuid", "http", "email", "logging", "traceback",
    "base64", "selectors", "manifests", "worker", "sitecustomize2", "utils",
]  # fmt: skip


def started(folder: Path, *command: str, path: str = str(ROOT)) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": path, "XDG_STATE_HOME": str(folder / "state")}
    environment["KUBECONFIG"] = str(folder / "nothing")
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    "command",
    [["validate", GOOD], ["render", GOOD], ["list"], ["submit", GOOD], ["--help"]],
    ids=lambda c: c[0],
)
def test_its_modules_are_not_imported(tmp_path: Path, command: list[str]) -> None:
    for name in MODULES:
        (tmp_path / f"{name}.py").write_text(f"print('taken from the folder {name}')\nraise SystemExit(99)\n")
    done = started(tmp_path, "-m", "launcher", *command)
    assert "taken from the folder" not in done.stdout + done.stderr
    assert done.returncode in (0, 5)


def test_a_checkout_that_is_not_installed(tmp_path: Path) -> None:
    """Only the checkout's folder has the launcher; its other files come last on the module path."""
    for package in ("launcher", "worker", "manifests"):
        shutil.copytree(ROOT / package, tmp_path / package)
    (tmp_path / "argparse.py").write_text("raise SystemExit(99)\n")
    code = "import sys; sys.argv[:] = ['-m'] + sys.argv[2:]; import launcher; print(launcher.__file__)"
    done = started(tmp_path, "-m", "launcher", "validate", GOOD, path="")
    assert done.returncode == 0, done.stderr
    assert "valid" in done.stdout
    seen = started(tmp_path, "-c", "import sys; sys.path[0] = sys.argv[1]; " + code, str(tmp_path), path="")
    assert seen.stdout.strip() == str(tmp_path / "launcher" / "__init__.py")


def test_the_folder_stays_for_whoever_imports_the_launcher(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import launcher\nimport other\n")
    (tmp_path / "other.py").write_text("print('found')\n")
    for command in (["mine.py"], ["-m", "mine"], ["-c", "import launcher, other"]):
        assert started(tmp_path, *command).stdout == "found\n"
