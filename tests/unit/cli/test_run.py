"""`run`: the file that a command line stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.cli import parser
from launcher.validation import loader


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text("import keras\nmodel.fit(x, y)\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert parser.main(["run", "train.py", "--print", *words]) == 0
    document: dict[str, Any] = yaml.safe_load(capsys.readouterr().out)
    return document


def test_options_become_fields(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    words = ["--workers", "4", "--evaluator", "--gpus", "2", "--image", "tf:1", "--package", "joblib"]
    words += ["--package", "numpy", "--name", "mine", "--set", "spec.runPolicy.backoffLimit=1"]
    document = printed(capsys, *words, "--", "--epochs", "3", "--", "-x")
    assert document["metadata"] == {"name": "mine"}
    assert document["spec"] == {
        "strategy": "MultiWorkerMirrored",
        "program": {
            "script": "./train.py",
            "args": ["--epochs", "3", "--", "-x"],
            "packages": ["joblib", "numpy"],
        },
        "modelDir": "/model",
        "image": "tf:1",
        "worker": {"replicas": 4, "resources": {"nvidia.com/gpu": 2}},
        "evaluator": {},
        "runPolicy": {"backoffLimit": 1},
    }
    (folder / "cluster.yaml").write_text(yaml.safe_dump(document))
    assert loader.load("cluster.yaml"), "what is printed is a valid file"


def test_gpus_are_those_of_the_tasks_that_train(capsys: pytest.CaptureFixture[str]) -> None:
    one = {"resources": {"nvidia.com/gpu": 1}}
    assert printed(capsys, "--gpus", "1")["spec"]["chief"] == one
    assert printed(capsys, "--gpus", "1", "--ps", "1")["spec"]["worker"] == one


def test_words_of_the_script_without_dashes_before_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser.main(["run", "train.py", "--batch-size", "3"])
    assert "what the script is to take stands behind --" in capsys.readouterr().err


def test_what_cannot_be_names_the_field(capsys: pytest.CaptureFixture[str]) -> None:
    assert parser.main(["run", "train.py", "--print", "--workers", "3", "--strategy", "Mirrored"]) == 2
    assert "train.py: spec.worker: Mirrored trains in one process" in capsys.readouterr().err
    assert parser.main(["run", "absent.py", "--print"]) == 2
    assert "no such file or folder: ./absent.py" in capsys.readouterr().err


def test_a_dry_run_says_what_would_be_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert parser.main(["run", "train.py", "--workers", "2", "--backend", "local", "--dry-run"]) == 0
    assert "Job train-worker\n" in capsys.readouterr().out
