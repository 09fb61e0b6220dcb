"""What a program's classes have, as far as its files tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.errors import Problem
from launcher.validation import source
from launcher.validation.loader import load
from launcher.validation.python_syntax import lacks_method, misfits

HAS = "    def predict_dataset(self, size):\n        return self.data"
PROGRAMS = {
    "class Program:\n    pass": True,
    "class Base:\n    pass\n\nclass Program(Base):\n    pass": True,
    f"class Program:\n{HAS}": False,
    f"class Base:\n{HAS}\n\nclass Program(Base):\n    pass": False,
    "class Program:\n    predict_dataset = None": False,
    "class Program:\n    def __init__(self, parameters):\n        self.predict_dataset = parameters": False,
    "class Program:\n    def __getattr__(self, name):\n        return self.data": False,
    "from base import Base\n\nclass Program(Base):\n    pass": False,
    "import made\n\n@made.predicting\nclass Program:\n    pass": False,
    "def Program(parameters):\n    return made": False,
    "Program = made": False,
}


@pytest.mark.parametrize("text", PROGRAMS)
def test_a_method_is_missed_where_that_is_certain(text: str) -> None:
    files = {"train.py": text.encode(), "other.py": f"class Program:\n{HAS}".encode()}
    assert lacks_method(files, "train:Program", "predict_dataset") is PROGRAMS[text]
    assert not lacks_method({"train/__init__.py": b"class Other: pass"}, "train:Program", "predict_dataset")


@pytest.mark.parametrize(
    ("method", "fits"),
    [
        ("def train_dataset(self, batch_size): ...", True),
        ("def train_dataset(self, batch_size, shuffled=True): ...", True),
        ("def train_dataset(self, *sizes): ...", True),
        ("def train_dataset(*everything, **options): ...", True),
        ("@made.dataset\n    def train_dataset(self): ...", True),
        ("train_dataset = made.dataset", True),
        ("def train_dataset(self): ...\n    train_dataset = made(train_dataset)", True),
        ("def other(self): ...", True),
        ("def train_dataset(self): ...", False),
        ("def train_dataset(self, batch_size, shuffled): ...", False),
        ("def train_dataset(self, batch_size, *, shuffled): ...", False),
    ],
)
def test_a_method_of_other_arguments_is_told_where_that_is_certain(method: str, fits: bool) -> None:
    files = {"train.py": f"class Program:\n    {method}\n".encode()}
    told = list(misfits(files, "train:Program", {"train_dataset": 1}))
    assert told == ([] if fits else [("train.py:2", "train_dataset")])


def test_a_method_of_other_arguments_is_refused_with_its_line(tmp_path: Path) -> None:
    program = "class Program:\n    def model(self): ...\n    def train_dataset(self): ...\n"
    (problem,) = _problems(tmp_path, program, "Train")
    assert (
        problem.message == "train.py:3: Program.train_dataset must be callable as train_dataset(batch_size)"
    )


def test_mode_predict_needs_its_method(tmp_path: Path) -> None:
    program = "class Program:\n    def model(self): ...\n    def train_dataset(self, size): ...\n"
    (problem,) = _problems(tmp_path, program, "Predict")
    assert problem.path == "spec.program.entrypoint"
    assert problem.message == "train:Program has no predict_dataset(batch_size), which mode: Predict needs"


def _problems(tmp_path: Path, program: str, mode: str) -> list[Problem]:
    (tmp_path / "train.py").write_text(program)
    (tmp_path / "cluster.yaml").write_text(
        "apiVersion: launcher/v1alpha1\nkind: TrainingCluster\nmetadata: {name: mnist}\nspec:\n"
        f"  strategy: OneDevice\n  mode: {mode}\n  modelDir: /model\n  chief: {{}}\n"
        '  program: {source: train.py, entrypoint: "train:Program"}\n'
    )
    (loaded,) = load(tmp_path / "cluster.yaml")
    return source.problems(loaded)
