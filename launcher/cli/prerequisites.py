"""Checks that this Python has what the launcher needs. Imports only modules that cannot be missing, and for
every command, `--help` too: what the message alone needs is imported for it.
"""

from __future__ import annotations

import importlib.util
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from launcher.errors import LauncherError, SpecError
from launcher.lists_and_counts import listed

if TYPE_CHECKING:
    from pathlib import Path

PACKAGES: Final = {
    "jinja2": "jinja2",
    "kubernetes": "kubernetes",
    "packaging": "packaging",
    "pydantic": "pydantic",
    "rich": "rich",
    "urllib3": "urllib3",
    "websocket": "websocket-client",
    "yaml": "pyyaml",
}
"""Module -> its distribution: pyproject.toml's dependencies."""


class MissingPackagesError(LauncherError):
    """This Python lacks packages that the launcher needs."""

    exit_code = SpecError.exit_code


def check(arguments: Sequence[str]) -> None:
    """Raises MissingPackagesError. It takes half a millisecond and runs first, because the last package is
    imported when a run has been started already.
    """
    missing = [name for module, name in PACKAGES.items() if importlib.util.find_spec(module) is None]
    if missing:
        from pathlib import Path

        raise MissingPackagesError(
            f"this Python, {sys.executable}, lacks {listed(missing)}, which the launcher needs",
            _advice(Path(__file__).resolve().parents[2], arguments),
        )


def _advice(root: Path, arguments: Sequence[str]) -> str:
    python = root / ".venv" / "bin" / "python"
    if not (root / "pyproject.toml").is_file():
        return f"Install them: {sys.executable} -m pip install {' '.join(PACKAGES.values())}"
    again = f"{_shown(python)} -m launcher {shlex.join(arguments)}"
    if python.exists():
        return f"The checkout's own Python has all of them: {again}"
    return f"`make -C {_shown(root)} venv` makes a Python that has all of them; then: {again}"


def _shown(path: Path) -> str:
    """Returns the path relative to the current folder, if it is below that."""
    from pathlib import Path

    try:
        return shlex.quote(str(path.relative_to(Path.cwd())))
    except ValueError:
        return shlex.quote(str(path))
