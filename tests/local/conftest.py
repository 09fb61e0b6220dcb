"""A state directory for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.backends.local.store import SupervisorSettings
from launcher.errors import NotFoundError
from tests.browser import Browser, browser
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
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A machine whose runs the command line finds, and no cluster."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "no-kubeconfig"))
    machine = Machine(
        tmp_path / "state" / "tf-launcher",
        SupervisorSettings(backoff=0.2, peers_seconds=1.0, evaluator_seconds=1.0),
    )
    yield machine
    for status in machine.backend.runs():
        machine.backend.delete(status.run, status.namespace)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests of a module. They are skipped where there is none."""
    with browser(tmp_path_factory.mktemp("chromium")) as started:
        yield started


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
