"""A state directory for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.backends.local.store import SupervisorSettings
from launcher.errors import NotFoundError
from tests.local.command_line import CommandLine, delete_all
from tests.local.machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine whose runs are deleted at the end, even after a failure. Delays are short, since no test is
    about them.
    """
    machine = Machine(
        tmp_path / "tf-launcher",
        SupervisorSettings(
            backoff=0.05,
            backoff_limit=0.2,
            peers_seconds=1.0,
            evaluator_seconds=1.0,
            other_image_seconds=1.0,
            failed_seconds=0.3,
        ),
    )
    yield machine
    for status in machine.backend.runs():
        try:
            machine.backend.delete(status.run, status.namespace)
        except NotFoundError:
            pass


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[CommandLine]:
    """The command line with no runs but the test's, and no cluster. Its runs are deleted at the end."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "no-kubeconfig"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    yield CommandLine(work, capsys)
    delete_all(tmp_path / "home" / "tf-launcher")
