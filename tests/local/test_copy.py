"""`cp` of a run on this machine: the files that it writes, and the errors after which no file stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import launcher
from launcher.errors import ConflictError
from tests.local.command_line import ENDS, CommandLine
from tests.local.machine import linux_only, python

pytestmark = linux_only  # the tasks write to /model

WRITES = python(
    "import os, pathlib\n"
    "export = pathlib.Path('/model/export')\n"
    "(export / 'variables').mkdir(parents=True)\n"
    "(export / 'saved_model.pb').write_bytes(bytes(range(256)) * 5000)\n"
    "(export / 'variables' / 'empty').touch()\n"
    "pathlib.Path('/model/notes.txt').write_text('note')\n"
    "os.symlink('/etc/passwd', export / 'out')\n"
    "os.symlink('/etc', '/model/etc')\n"
)


@pytest.fixture
def run(command: CommandLine) -> CommandLine:
    """A run whose task has left a model."""
    ran = command.run(
        "demo", worker={"command": WRITES}, modelDir="/model", storage={"reclaimPolicy": "Delete"}
    )
    assert ran.code == 0, ran.err
    return command


def tree(path: Path) -> dict[str, int]:
    return {str(each.relative_to(path)): each.stat().st_size for each in path.rglob("*") if each.is_file()}


EXPORT = {"saved_model.pb": 1_280_000, "variables/empty": 0}


def test_a_folder(run: CommandLine) -> None:
    assert run.good("cp", "demo:export", "./model") == "copied to model\n"
    assert tree(Path("model")) == EXPORT, "without the link, which leads out of it"
    assert Path("model/saved_model.pb").read_bytes() == bytes(range(256)) * 5000
    # The copy goes into an existing folder, under its own name; the path is as the task prints it.
    assert run.good("cp", "demo:/model/export", "model") == "copied to model/export\n"
    assert tree(Path("model/export")) == EXPORT
    assert run.good("cp", "demo:", "all") == "copied to all\n"
    assert tree(Path("all/export")) == EXPORT
    assert run.good("cp", "demo:notes.txt") == "copied to notes.txt\n"
    assert Path("notes.txt").read_text() == "note"
    assert launcher.find("demo").copy("export/variables", "v") == Path("v")
    assert tree(Path("v")) == {"empty": 0}


@pytest.mark.parametrize(
    ("source", "target", "code", "said"),
    [
        ("demo:exprot", "new", 4, "has no exprot\nThere is: etc, export, notes.txt."),
        ("demo:etc/passwd", "new", 4, "has no etc/passwd"),
        ("demo:../..", "new", 2, "expected a path below the run's model directory"),
        ("demo:/etc/passwd", "new", 2, "expected a path below the run's model directory"),
        ("demo", "new", 2, "expected a run and a path below its modelDir, as in demo:export"),
        ("nobody:export", "new", 3, "there is no run nobody"),
        ("demo:export", "there", 4, "there/export is there already"),
        ("demo:export", "no/such/folder", 4, "no/such is no folder"),
        ("demo:notes.txt", "locked/notes", 1, "locked/notes cannot be written: Permission denied"),
    ],
)
def test_what_is_refused(run: CommandLine, source: str, target: str, code: int, said: str) -> None:
    Path("there/export").mkdir(parents=True)
    Path("locked").mkdir(mode=0o500)
    if target.startswith("locked") and os.access("locked", os.W_OK):
        pytest.skip("root may write there")
    before = sorted(Path().rglob("*"))
    ran = run("cp", source, target)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err
    assert sorted(Path().rglob("*")) == before, "nothing half-made is left"


def test_a_run_without_a_model_directory(command: CommandLine) -> None:
    assert command.run("demo", worker={"command": ENDS}).code == 0
    ran = command("cp", "demo:export", "model")
    assert ran.code == 4
    assert "run demo has no model directory to copy from" in ran.err
    with pytest.raises(ConflictError):
        launcher.find("demo").copy("export")
