"""Files, overrides and programs that are hostile or broken: each gives one message with exit code 2, or is
accepted. Tests may only add to the lists.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from launcher import plan_of_file
from launcher.cli import parser
from launcher.config import yaml_parser
from launcher.errors import SpecError
from launcher.validation import loader
from tests.paths import ROOT

VALID = ROOT / "tests" / "specs" / "valid" / "one-task-mirrored.yaml"
PROGRAM = "class Program:\n    def model(self): ...\n    def train_dataset(self, batch_size): ...\n"
LONG = 5_000


@pytest.fixture(autouse=True)
def quietly() -> Iterator[None]:
    """Turns warnings, which a user would see, into errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def cluster(**program: object) -> dict[str, object]:
    return {
        "apiVersion": "launcher/v1alpha1",
        "kind": "TrainingCluster",
        "metadata": {"name": "run"},
        "spec": {"strategy": "OneDevice", "program": {"entrypoint": "train:Program", **program}},
    }


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Returns the messages of a command that ends with 2, and prints at most a screen of them."""
    assert parser.main(list(arguments)) == 2, capsys.readouterr().err[:500]
    captured = capsys.readouterr()
    assert captured.out == ""
    # A file's name may have 4,096 characters.
    assert len(captured.err) < 5_000 or "File name too long" in captured.err
    assert captured.err.endswith((" found\n", "nothing was done\n"))
    return captured.err


# ---- nested without an end

DEEP = {
    "flow sequences": "a: " + "[" * 25_000,
    "flow sequences that end": "a: " + "[" * 25_000 + "]" * 25_000,
    "flow mappings": "{a: " * 25_000,
    "block sequences on one line": "- " * 25_000,
    "block mappings": "\n".join(" " * level + "a:" for level in range(1_200)),
    "complex keys": "? " * 25_000,
    "anchors and aliases": "&a [*a, " * 10_000,
    "in a second document": "a: 1\n---\n" + "[" * 25_000,
    "JSON": '{"a":' * 25_000,
    "tags": "!!seq [" * 25_000,
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_a_file_that_nests_too_deeply(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text(text)
    assert f"{path}:" in refused(capsys, "validate", str(path))
    assert yaml_parser.too_deep(text) is not None
    assert yaml_parser.too_deep(text.encode()) == yaml_parser.too_deep(text)


@pytest.mark.parametrize("text", [*DEEP.values()][:3], ids=[*DEEP][:3])
def test_an_override_that_nests_too_deeply(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nested over 60 levels" in refused(capsys, "validate", str(VALID), "--set", f"spec.image={text}")


def test_the_process_lives_on() -> None:
    """It runs in a process of its own, since a segmentation fault would end this one."""
    done = subprocess.run(
        [sys.executable, "-m", "launcher", "validate", "-"],
        cwd=ROOT,
        input=b"[" * 900_000,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert b"nested over 60 levels: too deep" in done.stderr


def test_what_nests_as_deep_as_allowed_is_read() -> None:
    text = "[" * yaml_parser.MAX_DEPTH + "]" * yaml_parser.MAX_DEPTH
    padded = text + "\n# " + "x" * 5_000
    assert yaml_parser.too_deep(padded) is None
    (document,) = yaml_parser.parse(padded, "deep")
    assert document.value is not None


def test_what_is_no_yaml_is_not_too_deep() -> None:
    assert yaml_parser.too_deep("a: [}" * 1_000) is None
    assert yaml_parser.too_deep(bytes(range(128, 256)) * 100) is None


@pytest.mark.parametrize("depth", [100, 250, 900, 5_000])
def test_what_python_gives_nests_too_deeply(depth: int) -> None:
    deep: dict[str, object] = {}
    for _ in range(depth):
        deep = {"a": deep}
    with pytest.raises(SpecError):
        loader.check(cluster(parameters=deep))


# ---- values

VALUES = {
    "a hexadecimal number of 5,000 digits": "0x" + "f" * LONG,
    "an octal number of 5,000 digits": "0o" + "7" * LONG,
    "a number of 5,000 digits": "9" * LONG,
    "a number of 5,000 digits, negative": "-" + "9" * LONG,
    "a float of 5,000 digits": "1." + "9" * LONG,
    "a float that is too large": "1e999999999",
    "a number just too large": str(2**63),
    "a number of 399 digits": "9" * 399,
    "a hexadecimal number of 399 digits": "0x" + "f" * 397,
    "text of 5,000 characters": "a" * LONG,
    "half a surrogate pair": '"\\ud800"',
    "NUL": '"a\\0b"',
    "an escape sequence": '"\\e]52;c;aGk=\\a"',
    "a list": "[]",
    "a mapping": "{}",
    "nothing": "null",
    "true": "true",
    "a date": "2026-01-01",
    "not a number": ".nan",
    "a set": "!!set {a}",
    "bytes": "!!binary aGk=",
    "Python": "!!python/object/apply:os.system [id]",
    "an alias": "*a",
    "Arabic digits": '"\u0663"',
    "superscript": "\u00b2",
}
FIELDS = [
    "apiVersion", "kind", "metadata", "metadata.name", "metadata.namespace", "metadata.labels", "spec",
    "spec.strategy", "spec.chief", "spec.chief.replicas", "spec.chief.resources", "spec.chief.resources.cpu",
    "spec.chief.resources.limits", "spec.chief.env", "spec.chief.podTemplate", "spec.chief.podTemplate.spec",
    "spec.chief.podTemplate.spec.containers", "spec.chief.podTemplate.spec.terminationGracePeriodSeconds",
    "spec.chief.podTemplate.metadata", "spec.chief.podTemplate.metadata.labels", "spec.chief.port",
    "spec.chief.volumes", "spec.chief.volumeMounts", "spec.chief.affinity", "spec.chief.tolerations",
    "spec.storage.size", "spec.runPolicy.stallSeconds", "spec.runPolicy.backoffLimit", "spec.scheduling",
    "spec.scheduling.minResources", "spec.program.parameters", "spec.program.parameters.rate",
    "spec.program.source", "spec.program.entrypoint", "spec.program.keras", "spec.modelDir", "spec.image",
    "spec.evaluation.exact", "spec.tensorboard", "spec.tensorboard.resources",
    "spec.strategyOptions.numPacks",
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_any_value_in_any_field(value: str) -> None:
    messages: dict[str, str] = {}
    for field in FIELDS:
        try:
            (loaded,) = loader.load(str(VALID), [f"{field}={value}"])
            plan_of_file.plan(loaded)
        except SpecError as error:
            messages[field] = str(error)
    assert all(len(message) < 8_000 for message in messages.values())


@pytest.mark.parametrize("divisor", ["1e999999999", "1e-999999999", "9" * 5_000, "1e100", "-1", "0x10"])
def test_a_quantity_has_an_end(divisor: str) -> None:
    document = cluster()
    reference = {"resource": "limits.cpu", "divisor": divisor}
    variable = {"name": "A", "valueFrom": {"resourceFieldRef": reference}}
    document["spec"]["chief"] = {"env": [variable], "resources": {"cpu": divisor}}  # type: ignore[index]
    with pytest.raises(SpecError, match="expected a quantity"):
        loader.check(document)


# ---- overrides

OVERRIDES = {
    "5,000 parts": ".".join(["a"] * LONG) + "=1",
    "61 parts": ".".join(["a"] * 61) + "=1",
    "an index of 5,000 digits": f"spec.chief.env[{'9' * LONG}]=1",
    "an index beyond the end": "spec.chief.env[7]=1",
    "a superscript index": "spec.chief.env.\u00b2=1",
    "an index of a mapping": "spec[0]=1",
    "a negative index": "spec.chief.env[-1]=1",
    "an empty index": "spec.chief.env[]=1",
    "an index that is not closed": "spec.chief.env[0=1",
    "a name of 5,000 characters": "a" * LONG + "=1",
    "only dots": "....=1",
    "only brackets": "[0][0]=1",
    "nothing": "=",
    "bytes that are no UTF-8": "spec.\udcff=1",
    "an escape sequence": "spec.\x1b]0;x\x07=1",
    "NUL": "spec.a\0b=1",
    "several documents": "spec.chief=a: 1\n---\nb: 2",
    "an override of what was overridden": "spec.strategy.a.b=1",
}


@pytest.mark.parametrize("override", OVERRIDES.values(), ids=OVERRIDES)
def test_an_odd_override(override: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--set", "spec.chief.env=[{name: A, value: b}]", "--set", override]
    refused(capsys, "validate", str(VALID), *given)


def test_a_digit_of_another_script_is_an_index_as_python_has_it() -> None:
    given = ["spec.chief.env=[{name: A, value: b}]", "spec.chief.env[\u0660].value=c"]
    (loaded,) = loader.load(str(VALID), given)
    assert loaded.cluster.spec.chief is not None
    assert loaded.cluster.spec.chief.env[0].value == "c"


# ---- names of files


@pytest.mark.parametrize(
    "name",
    [
        "a" * LONG,
        "a/" * LONG,
        "\udcff.yaml",
        "a\0b",
        "",
        "/dev/null",
        "/proc/self/mem",
        "~",
        ".",
    ],
    ids=lambda name: ascii(name)[:20],
)
def test_an_odd_file(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, "validate", name)


def test_a_file_whose_name_is_no_utf8_is_read(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = os.fsencode(tmp_path) + b"/\xff.yaml"
    Path(os.fsdecode(path)).write_text(VALID.read_text())
    done = subprocess.run(
        [sys.executable, "-m", "launcher", "validate", path],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"/\\xff.yaml: autoencoder: valid" in done.stdout


# ---- the program


def folder(directory: Path, **program: object) -> str:
    path = directory / "cluster.yaml"
    path.write_text(yaml.safe_dump(cluster(**{"source": "code", **program})))
    code = directory / "code"
    code.mkdir(exist_ok=True)
    (code / "train.py").write_text(PROGRAM)
    return str(path)


def deep(code: Path) -> None:
    # It is not deeper, so that pytest can remove it: nothing is read below the limit.
    code.joinpath(*["a"] * 120).mkdir(parents=True)


def no_utf8(code: Path) -> None:
    Path(os.fsdecode(os.fsencode(code) + b"/\xff.py")).write_text("")


def folder_no_utf8(code: Path) -> None:
    inner = Path(os.fsdecode(os.fsencode(code) + b"/\xff"))
    inner.mkdir()
    (inner / "a.py").write_text("")


def newline(code: Path) -> None:
    (code / "a\nb.py").write_text("")


def escape(code: Path) -> None:
    (code / "a\x1b[2J.py").write_text("")


def loop(code: Path) -> None:
    (code / "train.py").unlink()
    (code / "train.py").symlink_to("train.py")


def no_python(code: Path) -> None:
    (code / "train.py").write_text("(" * 25_000)


def deep_python(code: Path) -> None:
    (code / "train.py").write_text("-" * 100_000 + "1")


def nul_python(code: Path) -> None:
    (code / "train.py").write_bytes(b"a = 1\0")


def odd_encoding(code: Path) -> None:
    (code / "train.py").write_text("# coding: nothing\n")


PROGRAMS: list[tuple[Callable[[Path], None], str]] = [
    (deep, "over 60 folders in one another: a/a/"),
    (no_utf8, "a file's name is not printable text: \\udcff.py: rename it"),
    (folder_no_utf8, "a file's name is not printable text: \\udcff/a.py: rename it"),
    (newline, "a file's name is not printable text: a\\nb.py: rename it"),
    (escape, "a file's name is not printable text: a\\x1b[2J.py: rename it"),
    (loop, "there is no .py file in code"),
    (no_python, "train.py:1: not valid Python"),
    (deep_python, "train.py: not valid Python: nested too deeply"),
    (nul_python, "not valid Python"),
    (odd_encoding, "not valid Python"),
]


@pytest.mark.parametrize(("make", "message"), PROGRAMS, ids=[make.__name__ for make, _ in PROGRAMS])
def test_an_odd_program(
    make: Callable[[Path], None], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder(tmp_path)
    make(tmp_path / "code")
    assert message in refused(capsys, "validate", path)


SOURCES = ["a" * LONG, "a/" * LONG, "", "nowhere", "cluster.yaml", "code/train.py/x", "a\x1b[2J", "\u202e"]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: ascii(source)[:20])
def test_an_odd_source(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "validate", folder(tmp_path, source=source))
    assert "spec.program" in message
    assert "\x1b" not in message


def test_a_programs_own_warnings_are_its_own(tmp_path: Path) -> None:
    path = folder(tmp_path)
    (tmp_path / "code" / "train.py").write_text(PROGRAM + 'PATTERN = "\\d"\nif 1 is 1: pass\n')
    assert parser.main(["validate", path]) == 0
