"""How a script's end by `sys.exit` is told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from worker.script import main_module

PARSER = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, required=True)
parser.parse_args()
"""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: --epochs"),
        (["--epochs", "few"], "argument --epochs: invalid int value: 'few'"),
        (["--epochs", "2", "--rate", "1"], "unrecognized arguments: --rate 1"),
    ],
)
def test_arguments_that_argparse_refuses_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.setattr(sys, "argv", [""])
    script = tmp_path / "train.py"
    script.write_text(PARSER)
    with pytest.raises(SystemExit) as exited:
        main_module.execute(str(script), arguments)
    code, failure = main_module.of_exit(exited.value, "train.py", [tmp_path])
    assert (code, failure.message) == (70, f"train.py takes other arguments: {message}")
