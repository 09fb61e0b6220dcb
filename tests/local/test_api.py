"""The library in a program or a notebook, with real TensorFlow processes on this machine. The code is that of
docs/python.md.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import launcher
from tests.local.machine import TIMEOUT, eventually, linux_only
from tests.paths import ROOT

pytestmark = linux_only


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder and a state directory; no process is left at the end."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    yield work
    for run in launcher.runs(backend="local"):
        run.delete()


def from_the_document(heading: str) -> list[str]:
    """Returns the Python blocks under a heading."""
    text = (ROOT / "docs" / "python.md").read_text()
    _, _, section = text.partition(f"\n## {heading}\n")
    return re.findall(r"^```python\n(.*?)^```$", section.partition("\n## ")[0], re.MULTILINE | re.DOTALL)


def cells(*texts: str) -> str:
    """Returns what the texts print as one program; `%%writefile` works as in Jupyter."""
    code = []
    for text in texts:
        first, _, rest = text.partition("\n")
        if first.startswith("%%writefile "):
            Path(first.split()[1]).write_text(rest)
        else:
            code.append(text)
    Path("cells.py").write_text("\n".join(code))
    done = subprocess.run(
        [sys.executable, "cells.py"], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.thorough
def test_a_program_from_a_notebook(here: Path) -> None:
    program = (ROOT / "launcher" / "init_template" / "train.py").read_text()
    document = from_the_document("Train from Python, or from a notebook")
    output = cells(f"%%writefile train.py\n{program}", *document)
    assert re.search(r"^chief-0 \| \S", output, re.MULTILINE)
    assert re.search(r"^Succeeded .*accuracy", output, re.MULTILINE), output
    export = re.search(r"^exported to (\S+)$", output, re.MULTILINE)
    assert export
    assert not Path(export[1]).exists(), "the run was deleted, and its claim with it"
    assert launcher.runs(backend="local") == []


@pytest.mark.thorough
def test_a_function_that_trains(here: Path) -> None:
    output = cells(*from_the_document("Train by a function of mine"))
    assert output.splitlines()[-1].startswith("Succeeded"), output
    run = launcher.find("train")
    texts = {(line.role, line.index): line.text for line in run.logs("worker") if "replicas" in line.text}
    assert texts == {("worker", index): "3 epochs on 2 replicas" for index in (0, 1)}


SLEEP = {
    "apiVersion": "launcher/v1alpha1",
    "kind": "TrainingCluster",
    "metadata": {"name": "sleep"},
    "spec": {"strategy": "OneDevice", "command": ["python", "-c", "import time; time.sleep(60)"]},
}


def test_a_run_in_hand(here: Path) -> None:
    run = launcher.submit(SLEEP, backend="local")
    assert run.notes[0].startswith("chief: its command is retried after a Python error")
    assert run.wait(until="running", timeout=TIMEOUT).phase == "Running"
    with pytest.raises(launcher.ConflictError, match=r"run sleep has not ended within 0.1 s"):
        run.wait(timeout=0.1)
    with pytest.raises(launcher.ConflictError, match="is still running"):
        launcher.submit(SLEEP, backend="local")
    with pytest.raises(launcher.BackendError, match="no cluster to say anything"):
        run.events()

    again = launcher.find("sleep")
    assert repr(again) == "Run('sleep', namespace='default')"
    again.suspend()
    eventually(lambda: run.status().phase == "Suspended", "suspended")
    again.resume()
    assert run.wait(until="running", timeout=TIMEOUT).all_run
    assert list(run.places()) == ["logs"]
    assert "<h1>sleep</h1>" in run.report()

    assert run.delete() == ""
    with pytest.raises(launcher.NotFoundError):
        run.status()
    with pytest.raises(launcher.NotFoundError):
        launcher.find("sleep", backend="local")


def test_a_run_that_belongs_to_its_process(here: Path) -> None:
    Path("submit.py").write_text(
        f"import launcher\nlauncher.submit({SLEEP!r}, backend='local', detach=False)"
    )
    subprocess.run([sys.executable, "submit.py"], check=True, timeout=TIMEOUT)
    status = launcher.find("sleep", backend="local").wait(timeout=TIMEOUT)
    assert (status.phase, status.message) == (
        "Failed",
        "The run was stopped: the launcher that it belonged to is gone",
    )
