"""Every file in specs/valid is accepted. Every file in specs/invalid is refused with the text beside it."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from launcher.errors import SpecError
from launcher.validation import loader
from tests.paths import SPECS

INVALID = sorted(SPECS.glob("invalid/*.yaml"))
VALID = sorted(SPECS.glob("valid/*.yaml"))


def refusal(path: Path, *overrides: str) -> str:
    with pytest.raises(SpecError) as caught:
        loader.load(str(path), overrides)
    return "".join(f"{problem}\n" for problem in caught.value.problems).replace(str(path), path.name)


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_valid(path: Path) -> None:
    (loaded,) = loader.load(str(path))
    again = type(loaded.cluster).model_validate_json(loaded.cluster.model_dump_json(exclude_defaults=True))
    assert again == loaded.cluster
    assert loaded.directory == path.parent


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_invalid(path: Path, renew: bool) -> None:
    text = refusal(path)
    expected = path.with_suffix(".txt")
    if renew:
        expected.write_text(text)
    assert text == expected.read_text()


def test_a_missing_file_names_the_nearest() -> None:
    assert refusal(SPECS / "valid" / "own-scrip.yaml").endswith(
        f"did you mean {SPECS}/valid/own-script.yaml?\n"
    )


def test_a_folder() -> None:
    assert refusal(SPECS) == "specs: a folder: give the cluster.yaml in it\n"


def test_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "data.yaml"
    with path.open("wb") as file:
        file.truncate(100_000_000)
    assert refusal(path) == "data.yaml: over 1 MiB: not a training cluster\n"


def test_binary_junk(tmp_path: Path) -> None:
    path = tmp_path / "junk.yaml"
    path.write_bytes(bytes(range(128, 256)))
    assert refusal(path) == "junk.yaml: not UTF-8 text (byte 0): not a training cluster\n"


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (SPECS / "valid" / "one-task-mirrored.yaml").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    (loaded,) = loader.load("-")
    assert loaded.cluster.metadata.name == "autoencoder"
    assert loaded.directory == Path.cwd()


def test_several_documents(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    first = (SPECS / "valid" / "one-task-mirrored.yaml").read_text()
    path.write_text(f"{first}---\n{first.replace('autoencoder', 'second')}---\n")
    assert [loaded.cluster.metadata.name for loaded in loader.load(str(path))] == ["autoencoder", "second"]


def test_overrides() -> None:
    path = SPECS / "valid" / "parameter-server.yaml"
    (loaded,) = loader.load(
        str(path),
        [
            "spec.worker.replicas=4",
            "spec.evaluator=null",
            "spec.program.parameters.rate=1e-3",
            "spec.template.env=[{name: A, value: b}]",
            "spec.template.env[0].value=c=d",
        ],
    )
    spec = loaded.cluster.spec
    assert spec.worker is not None
    assert spec.worker.replicas == 4
    assert spec.evaluator is None
    assert spec.program is not None
    assert spec.program.parameters["rate"] == 0.001
    assert spec.template.env[0].value == "c=d"


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("spec.worker.replicas=x", "spec.worker.replicas: expected an integer, not x"),
        ("spec.worker.replica=3", "spec.worker.replica: unknown field; did you mean replicas?"),
        ("spec.worker.replicas", "expected field=value, as in --set spec.worker.replicas=4"),
        ("worker.replicas=3", "begins with spec. (or metadata.), as in --set spec.worker.replicas=3"),
        ("=3", "expected field=value, as in --set spec.worker.replicas=4"),
        ("spec.strategy.x=1", "spec.strategy.x: spec.strategy is no mapping"),
        ("spec.program.parameters={a: 010}", "010 is not the same number in YAML 1.1 and 1.2"),
        ("spec.worker.args[0]=a", "spec.worker.args: expected a list, not a mapping"),
        ("spec.image=[", "not valid YAML"),
        ("spec.image=\udcff", "not UTF-8 text"),
    ],
)
def test_wrong_overrides(override: str, expected: str) -> None:
    text = refusal(SPECS / "valid" / "parameter-server.yaml", override)
    assert text.startswith(f"--set {ascii(override)[1:-1]}:")
    assert expected in text
