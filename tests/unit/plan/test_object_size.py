"""`validate` refuses objects that are too large for an API server."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from launcher.cli import parser

PROGRAM = "class Program:\n    def model(self): ...\n    def train_dataset(self, batch_size): ...\n"


def folder(directory: Path, files: dict[str, bytes]) -> str:
    code = directory / "code"
    code.mkdir()
    (code / "train.py").write_text(PROGRAM)
    for name, content in files.items():
        (code / name).write_bytes(content)
    program = {"source": "code", "entrypoint": "train:Program"}
    spec = {"strategy": "OneDevice", "program": program}
    document = {"apiVersion": "launcher/v1alpha1", "kind": "TrainingCluster", "metadata": {"name": "run"}}
    path = directory / "cluster.yaml"
    path.write_text(yaml.safe_dump({**document, "spec": spec}))
    return str(path)


TOO_LARGE = {
    # JSON takes six bytes for each.
    "control characters": ({"a.txt": b"\1" * 890_000}, "the ConfigMap run-source would be sent as 5,"),
    "many long names": (
        {f"{number:05d}-{'n' * 190}": b"" for number in range(10_000)},
        "the Job run-chief would be stored as",
    ),
}


@pytest.mark.by_day("control characters")
@pytest.mark.parametrize(("files", "message"), TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_program_that_no_server_takes(
    files: dict[str, bytes], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert parser.main(["validate", folder(tmp_path, files)]) == 2
    error_output = capsys.readouterr().err
    assert "spec.program.source: " in error_output
    assert message in error_output
    assert len(error_output) < 700


@pytest.mark.parametrize(
    "files",
    [{"a.txt": b"x" * 890_000}, {"a.bin": b"\xff" * 890_000}, {f"{n:05d}.txt": b"" for n in range(2_000)}],
    ids=["text", "bytes", "many files"],
)
def test_a_large_program_that_one_takes(
    files: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert parser.main(["validate", folder(tmp_path, files)]) == 0, capsys.readouterr().err
