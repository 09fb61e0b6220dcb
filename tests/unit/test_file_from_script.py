"""The file that a script's path stands for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import launcher
from launcher import api, file_from_script
from launcher.errors import SpecError

FIT = "import keras\nmodel.fit(x, y)\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train_MNIST.py").write_text(FIT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def spec(**fields: Any) -> dict[str, Any]:
    document, _ = file_from_script.cluster("train_MNIST.py", fields)
    spec_fields: dict[str, Any] = document["spec"]
    return spec_fields


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"strategy": "Mirrored"}),
        ({"worker": {"replicas": 1}}, {"strategy": "Mirrored", "worker": {"replicas": 1}}),
        ({"worker": {"replicas": 3}}, {"strategy": "MultiWorkerMirrored", "worker": {"replicas": 3}}),
        (
            {"ps": {"replicas": 2}},
            {"strategy": "ParameterServer", "worker": {"replicas": 2}, "ps": {"replicas": 2}},
        ),
        (
            {"strategy": "ParameterServer", "worker": {"replicas": 3}},
            {"strategy": "ParameterServer", "worker": {"replicas": 3}, "ps": {"replicas": 1}},
        ),
        ({"strategy": "MultiWorkerMirrored"}, {"strategy": "MultiWorkerMirrored", "worker": {"replicas": 2}}),
        ({"strategy": "OneDevice", "image": None}, {"strategy": "OneDevice"}),
    ],
)
def test_what_is_asked_for_says_strategy_and_tasks(
    folder: Path, fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    spec_fields = spec(**fields)
    assert spec_fields.pop("program") == {"script": "./train_MNIST.py"}
    assert spec_fields.pop("modelDir") == "/model"
    assert spec_fields == expected
    api.loaded("train_MNIST.py", (), fields)  # and is valid


def test_name_arguments_and_other_fields(folder: Path) -> None:
    given = api.loaded(
        Path("train_MNIST.py"),
        ["spec.runPolicy.backoffLimit=1"],
        {"args": ["--epochs", 3], "program": {"packages": ["joblib"]}, "model_dir": "/mine"},
    ).cluster
    assert given.metadata.name == "train-mnist"
    assert given.spec.program is not None
    assert (given.spec.program.args, given.spec.program.packages) == (("--epochs", "3"), ("joblib",))
    assert (given.spec.model_dir, given.spec.run_policy.backoff_limit) == ("/mine", 1)
    (folder / "01 try.py").write_text(FIT)
    assert api.loaded("01 try.py", (), {}).cluster.metadata.name == "run-01-try"


def shipped(path: str, **fields: Any) -> tuple[str, set[str]]:
    """Returns the script's path and the names of the files that travel."""
    objects = launcher.render(path, **fields)
    maps = {item["metadata"]["name"]: item for item in objects if item["kind"] == "ConfigMap"}
    config = json.loads(
        next(each for name, each in maps.items() if name.endswith("-config"))["data"]["run.json"]
    )
    volumes = objects[0]["spec"]["template"]["spec"]["volumes"]
    items = next(volume for volume in volumes if volume["name"] == "launcher-source")["configMap"]["items"]
    return config["script"], {item["path"] for item in items}


def test_files_beside_the_script_travel_where_it_imports_them(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "util.py").write_text("X = 1\n")
    assert shipped("train_MNIST.py") == ("train_MNIST.py", {"train_MNIST.py"})
    (folder / "other.py").write_text("from util import X\n" + FIT)
    assert shipped("other.py") == ("other.py", {"train_MNIST.py", "util.py", "other.py"})
    (folder / "sub").mkdir()
    (folder / "sub" / "deep.py").write_text(FIT)
    assert shipped("sub/deep.py", source="sub") == ("deep.py", {"deep.py"})
    assert shipped("sub/deep.py", source=folder)[0] == "sub/deep.py"
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert shipped(str(folder / "other.py"))[0] == "other.py"
    with pytest.raises(SpecError, match=r"a folder with other\.py in it, not \."):
        launcher.render(folder / "other.py", source=".")


def test_a_notebook_travels_as_a_script(folder: Path) -> None:
    cells = ["!pip install joblib\nimport keras", "%%writefile util.py\nX = 1", "model.fit(x, y)"]
    book = {
        "nbformat": 4,
        "metadata": {},
        "cells": [{"cell_type": "code", "source": cell} for cell in cells],
    }
    (folder / "first.ipynb").write_text(json.dumps(book))
    assert shipped("first.ipynb") == ("first.ipynb.py", {"first.ipynb.py", "util.py"})
    book["cells"][2]["source"] = "model.fit(x,"  # type: ignore[index]
    (folder / "first.ipynb").write_text(json.dumps(book))
    with pytest.raises(
        SpecError, match=r"spec\.program\.script: first\.ipynb: cell 3, line 1: not valid Python"
    ):
        launcher.render("first.ipynb")
