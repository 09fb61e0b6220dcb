"""The question of `delete` on a terminal, when the model is deleted with the run."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.object_names import RECLAIM_ANNOTATION
from tests.local.machine import Machine, eventually, job
from tests.paths import ROOT

VOLUME = {"persistentVolumeClaim": {"claimName": "demo-model"}}


@pytest.fixture
def model(machine: Machine) -> Path:
    """A model that a run has left on a claim that is deleted with the run."""
    metadata = {"name": "demo-model", "annotations": {RECLAIM_ANNOTATION: "Delete"}}
    claim = {"kind": "PersistentVolumeClaim", "metadata": metadata}
    write = "open('/model/file', 'w').close()"
    machine.run(job("chief", write, primary=True, mounts={"/model": VOLUME}), claim)
    return machine.directory().claim("demo-model")


def delete(machine: Machine, *options: str) -> tuple[list[str], dict[str, Any]]:
    command = [sys.executable, "-m", "launcher", "delete", "demo", "--backend", "local", *options]
    environment = {**os.environ, "XDG_STATE_HOME": str(machine.root.parent)}
    return command, {"env": environment, "cwd": ROOT, "text": True}


def answered(machine: Machine, answer: str) -> tuple[int, str]:
    """Returns the exit code, and the terminal's text."""
    command, options = delete(machine)
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, **options)
        shown = b""

        def asked() -> bool:
            nonlocal shown
            shown += os.read(ours, 4096)
            return b"[y/N]" in shown

        eventually(asked, "that it asks")
        os.write(ours, answer.encode())
        code = process.wait(60)
        os.close(theirs)
        theirs = -1
        try:
            while more := os.read(ours, 4096):
                shown += more
        except OSError:  # Linux raises it when the other side is closed
            pass
        return code, shown.decode()
    finally:
        for end in filter(lambda end: end >= 0, (ours, theirs)):
            os.close(end)


@pytest.mark.parametrize("answer", ["n\n", "\n", "\x04"])
def test_without_a_yes_nothing_is_deleted(machine: Machine, model: Path, answer: str) -> None:
    code, shown = answered(machine, answer)
    assert code == 130
    assert f"This deletes run demo and what it has trained, in {model}. Delete it?" in shown
    assert "run demo is left as it is" in shown
    assert (model / "file").exists()
    assert machine.status().ended


def test_after_a_yes_it_is(machine: Machine, model: Path) -> None:
    code, shown = answered(machine, "y\n")
    assert code == 0
    assert f"run demo is deleted; so is what it has trained, in {model}" in shown
    assert not model.exists()


@pytest.mark.parametrize("options", [[], ["--yes"]])
def test_a_script_is_not_asked_and_told(machine: Machine, model: Path, options: list[str]) -> None:
    command, common = delete(machine, *options)
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60, **common
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"run demo is deleted; so is what it has trained, in {model}\n"
    assert not model.exists()
