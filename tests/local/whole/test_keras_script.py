"""The script of docs/programs.md, "Bring a Keras script", and its program on two workers reach the
same scores.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.paths import ROOT

PAGE = ROOT / "docs" / "programs.md"
SERVERS = {"strategy": "ParameterServer", "chief": {}, "ps": {}}


def blocks() -> list[str]:
    """Returns the script, the program and the file."""
    section = PAGE.read_text().partition("## Bring a Keras script\n")[2].partition("\n## ")[0]
    return re.findall(r"```(?:python|yaml)\n(.*?)```", section, re.DOTALL)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Returns the scores that the script prints."""
    script = tmp_path_factory.mktemp("alone") / "script.py"
    script.write_text(blocks()[0])
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-3000:]
    scores: dict[str, float] = ast.literal_eval(done.stdout.splitlines()[-1])
    return scores


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="MultiWorkerMirrored", marks=pytest.mark.thorough),
        pytest.param(SERVERS, id="ParameterServer", marks=pytest.mark.thorough),
    ],
)
def test_the_program_trains_as_the_script_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: dict[str, float], more: dict[str, Any]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    _, program, file = blocks()
    (tmp_path / "train.py").write_text(program)
    document = yaml.safe_load(file)
    document["spec"] |= more
    (tmp_path / "cluster.yaml").write_text(json.dumps(document))
    command = [
        sys.executable,
        "-m",
        "launcher",
        "submit",
        str(tmp_path / "cluster.yaml"),
        "--backend",
        "local",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    evaluations = re.findall(r"^evaluation +accuracy ([\d.]+), loss ([\d.]+)", done.stdout, re.MULTILINE)
    assert len(evaluations) == 1, done.stdout
    accuracy, loss = map(float, evaluations[0])
    if more:
        assert accuracy > 0.8  # the workers do not wait for each other
    else:
        assert accuracy == pytest.approx(alone["accuracy"], abs=1e-4)
        assert loss == pytest.approx(alone["loss"], abs=1e-4)
