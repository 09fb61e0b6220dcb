"""`cp` of a run on this machine: the files that it writes, and the errors after which no file stays."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Any

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
    "os.symlink('loop', '/model/loop')\n"
    "os.mkfifo('/model/export/variables/pipe')\n"
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


@pytest.mark.by_day("demo:../..-new-2-expected a path below the run's model directory")
@pytest.mark.parametrize(
    ("source", "target", "code", "message"),
    [
        ("demo:exprot", "new", 4, "has no exprot\nThere is: etc, export, loop, notes.txt."),
        ("demo:etc/passwd", "new", 4, "has no etc/passwd"),
        ("demo:../..", "new", 2, "expected a path below the run's model directory"),
        ("demo:/etc/passwd", "new", 2, "expected a path below the run's model directory"),
        ("demo:loop", "new", 4, "has no loop"),
        ("demo:export/variables/pipe", "new", 4, "has no export/variables/pipe\nThere is: empty, pipe."),
        ("demo:notes.txt/more", "new", 4, "has no notes.txt/more"),
        ("demo:" + "a" * 300, "new", 4, "a cannot be read: File name too long"),
        ("demo:" + "a/" * 3000, "new", 4, "a cannot be read: File name too long"),
        ("demo:export", "~nobody-of-this-name/new", 4, "new cannot be written: Could not determine home"),
        ("demo:export", "a" * 300, 4, "cannot be written: File name too long"),
        ("demo:export", "notes/" * 900, 4, "cannot be written: File name too long"),
        ("demo", "new", 2, "expected a run and a path below its modelDir, as in demo:export"),
        ("nobody:export", "new", 3, "there is no run nobody"),
        ("demo:export", "there", 4, "there/export is there already"),
        ("demo:export", "no/such/folder", 4, "no/such is no folder"),
        ("demo:notes.txt", "locked/notes", 5, "locked/notes cannot be written: Permission denied"),
    ],
)
def test_what_is_refused(run: CommandLine, source: str, target: str, code: int, message: str) -> None:
    Path("there/export").mkdir(parents=True)
    Path("locked").mkdir(mode=0o500)
    if target.startswith("locked") and os.access("locked", os.W_OK):
        pytest.skip("root may write there")
    before = sorted(Path().rglob("*"))
    ran = run("cp", source, target)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err
    assert sorted(Path().rglob("*")) == before, "nothing half-made is left"


def test_a_target_with_the_longest_name(run: CommandLine) -> None:
    name = "\N{GRINNING FACE}" * 63
    assert run("cp", "demo:export", name).code == 0
    assert tree(Path(name)) == EXPORT


def test_a_target_on_a_read_only_disk(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose errors come again when what is half-made is removed."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr("shutil.copy2", refuse)
        patched.setattr(Path, "unlink", refuse)
        ran = run("cp", "demo:notes.txt", "new")
    assert ran.code == 5
    assert ran.err.startswith("error: new cannot be written: Read-only file system\nGive another path")


def test_folders_deeper_than_python_s_stack(command: CommandLine) -> None:
    """They are refused, and removed with the run."""

    def place() -> Path:
        return Path(os.environ["XDG_STATE_HOME"], "tf-launcher/volumes/default/demo-model")

    deep = python(
        "import os, tempfile\n"
        "for top in '/model', tempfile.gettempdir():\n"
        "    os.chdir(top)\n"
        "    for _ in range(1200):\n"
        "        os.mkdir('d')\n"
        "        os.chdir('d')\n"
    )
    model: dict[str, Any] = {"modelDir": "/model", "storage": {"size": "1Gi", "reclaimPolicy": "Delete"}}
    try:
        assert command.run("demo", worker={"command": deep}, **model).code == 0
        ran = command("cp", "demo:", "new")
        if ran.code:  # by a Python whose functions of folders call themselves
            assert (ran.code, "the folders are nested too deeply" in ran.err) == (5, True), ran.err
            assert [path for path in Path().iterdir() if path.is_dir()] == []
        assert command.run("demo", worker={"command": ENDS}, **model).code == 0
        assert place().exists()
        command.good("delete", "demo", "--yes")
        assert not place().exists()
    finally:  # pytest cannot remove them either
        subprocess.run(["rm", "-rf", *map(str, place().parent.glob("*"))], check=True)


def test_a_run_without_a_model_directory(command: CommandLine) -> None:
    assert command.run("demo", worker={"command": ENDS}).code == 0
    ran = command("cp", "demo:export", "model")
    assert ran.code == 4
    assert "run demo has no model directory to copy from" in ran.err
    with pytest.raises(ConflictError):
        launcher.find("demo").copy("export")
