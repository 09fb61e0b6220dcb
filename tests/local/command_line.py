"""Runs of small commands by the real command line, with a state directory for each test."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.local.backend import LocalBackend
from launcher.cli import parser
from tests.local.machine import TIMEOUT, python

ENDS = python("print('done')")
FOR_EVER = python("import time; print('up', flush=True); time.sleep(600)")


@dataclass
class Ran:
    """A command's exit code, and what it printed."""

    code: int
    out: str
    err: str


@dataclass
class CommandLine:
    """Runs commands; see `tests/local/conftest.py`."""

    directory: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str) -> Ran:
        self.capsys.readouterr()
        try:
            code = parser.main(arguments)
        except SystemExit as leave:
            code = int(leave.code or 0)
        captured = self.capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    def good(self, *arguments: str) -> str:
        """Runs a command that must succeed, and returns its output."""
        ran = self(*arguments)
        assert ran.code == 0, ran.err
        return ran.out

    def file(self, name: str, metadata: dict[str, Any] | None = None, **spec: Any) -> str:
        """Writes a cluster.yaml of strategy Custom, and returns its path."""
        document = {
            "apiVersion": "launcher/v1alpha1",
            "kind": "TrainingCluster",
            "metadata": {"name": name, **(metadata or {})},
            "spec": {"strategy": "Custom", **spec},
        }
        path = self.directory / f"{name}.yaml"
        path.write_text(json.dumps(document))
        return str(path)

    def start(self, name: str, metadata: dict[str, Any] | None = None, **spec: Any) -> None:
        """Submits the run and does not wait."""
        self.good("submit", self.file(name, metadata, **spec), "--backend", "local", "--detach")

    def run(self, name: str, metadata: dict[str, Any] | None = None, **spec: Any) -> Ran:
        """Submits the run and waits for its end."""
        self.start(name, metadata, **spec)
        return self("wait", name, "--timeout", f"{TIMEOUT:g}s")

    def until(self, condition: Callable[[Ran], Any], *arguments: str) -> Ran:
        """Repeats a command until the condition holds, and returns its result."""
        until = time.monotonic() + TIMEOUT
        while time.monotonic() < until:
            ran = self(*arguments)
            if condition(ran):
                return ran
            time.sleep(0.1)
        raise AssertionError(f"{arguments}: not after {TIMEOUT:g} s: {ran}")


def delete_all(root: Path) -> None:
    """Deletes all runs, so that no process is left."""
    backend = LocalBackend(root)
    for status in backend.runs():
        backend.delete(status.run, status.namespace)
