"""Runs on this machine that an earlier release has begun: tests/releases has its files, as it wrote them."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.cli import parser
from tests.releases.record import FILES, HERE

RELEASES = sorted(path.parent.parent.name for path in HERE.glob("*/local/runs"))

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(params=RELEASES)
def state(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of the release, as it would be within the hour."""
    state = tmp_path / "tf-launcher"
    shutil.copytree(HERE / request.param / "local", state)
    for run in (state / "runs" / "default").iterdir():
        os.mkfifo(run / "control", 0o600)
        if (run / "expires").exists():
            (run / "expires").write_text(str(time.time() + 3600))
    return state


@pytest.fixture
def run(state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A command on that folder: exit code, standard output and standard error."""
    monkeypatch.setenv("XDG_STATE_HOME", str(state.parent))

    def call(*arguments: str) -> tuple[int, str, str]:
        code = parser.main([*arguments, "--backend", "local"])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_there_is_a_release() -> None:
    assert "0.1.0" in RELEASES


def test_they_are_listed_and_shown(run: Run) -> None:
    code, out, error = run("list")
    assert (code, error) == (0, "")
    shown = {name: phase for _, name, phase, *_ in (line.split() for line in out.splitlines()[1:])}
    assert shown == {"ended": "Succeeded", "interrupted": "Lost"}
    code, out, _ = run("status", "ended", "-o", "json")
    document = json.loads(out)["status"]
    assert (code, document["phase"], document["ended"]) == (0, "Succeeded", True)
    assert [(role["role"], role["replicas"]) for role in document["roles"]] == [("worker", 2)]


def test_an_ended_run_is_followed_read_and_copied(run: Run, state: Path, tmp_path: Path) -> None:
    code, out, error = run("wait", "ended")
    assert code == 0, error
    # Then a claim that is deleted with its run was in the run's own folder.
    model = state / "runs" / "default" / "ended" / "claims" / "ended-model"
    assert str(model) in out or str(model) in run("status", "ended")[1]
    code, out, error = run("logs", "ended")
    assert (code, error) == (0, "")
    assert sorted(line.split("|")[1].strip() for line in out.splitlines()) == ["trained on 0", "trained on 1"]
    code, _, error = run("cp", "ended:weights-1", str(tmp_path / "weights"))
    assert code == 0, error
    assert (tmp_path / "weights").read_text() == "weights\n"


def test_an_interrupted_run_is_followed(run: Run) -> None:
    """Nobody carries it out any more: that is said, and nothing is waited for."""
    code, out, error = run("wait", "interrupted")
    assert (code, error) == (1, "")
    assert "run interrupted is lost" in out
    assert "began" in run("logs", "interrupted")[1]


@pytest.mark.parametrize("name", ["ended", "interrupted"])
def test_one_is_deleted(run: Run, state: Path, name: str) -> None:
    code, _, error = run("delete", name, "--yes")
    assert code == 0, error
    left = {path.name for path in (state / "runs" / "default").iterdir() if path.is_dir()}
    assert left == {"ended", "interrupted"} - {name}


@pytest.mark.parametrize("name", ["ended", "interrupted"])
def test_one_is_submitted_again(run: Run, name: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text((FILES / "local" / f"{name}.yaml").read_text().replace("sleep 600", "true"))
    code, out, error = run("submit", str(file))
    assert code == 0, out + error
    assert f"run {name} has succeeded" in out
    assert run("delete", name, "--yes")[0] == 0
