"""What a program's classes have, as far as its files tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.validation import source
from launcher.validation.loader import load
from launcher.validation.python_syntax import lacks_method

HAS = "    def predict_dataset(self, size):\n        return self.data"
PROGRAMS = {
    "class Program:\n    pass": True,
    "class Base:\n    pass\n\nclass Program(Base):\n    pass": True,
    f"class Program:\n{HAS}": False,
    f"class Base:\n{HAS}\n\nclass Program(Base):\n    pass": False,
    "class Program:\n    predict_dataset = None": False,
    "class Program:\n    def __init__(self, parameters):\n        self.predict_dataset = parameters": False,
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


def test_mode_predict_needs_its_method(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("class Program:\n    pass\n")
    (tmp_path / "cluster.yaml").write_text(
        "apiVersion: launcher/v1alpha1\nkind: TrainingCluster\nmetadata: {name: mnist}\nspec:\n"
        "  strategy: OneDevice\n  mode: Predict\n  modelDir: /model\n  chief: {}\n"
        '  program: {source: train.py, entrypoint: "train:Program"}\n'
    )
    (loaded,) = load(tmp_path / "cluster.yaml")
    (problem,) = source.problems(loaded)
    assert problem.path == "spec.program.entrypoint"
    assert problem.message == "train:Program has no predict_dataset(batch_size), which mode: Predict needs"
