"""A full disk: the run's message, and the files that stay. The disk is real, a small one in memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.backends.local.store import RunDirectory, new_uid
from launcher.errors import BackendError
from tests.local.machine import Machine, job, linux_only
from tests.paths import ROOT

INSIDE = """
import contextlib, os, subprocess, sys
from pathlib import Path
from launcher.backends.local.store import SupervisorSettings
from launcher.errors import BackendError
from tests.local.machine import Machine, job

here = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", str(here)], check=True)
machine = Machine(here / "state", SupervisorSettings(failed_seconds=0.3, other_image_seconds=0.3))

def fill(path):
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
"""
"""Code that runs in its own mount and user namespaces."""

CHIEF = """
import contextlib, os, sys
with contextlib.suppress(OSError), open("filling", "wb", buffering=0) as file:
    while True:
        file.write(bytes(4096))
os._exit(3)
"""


def on_a_small_disk(tmp_path: Path, code: str) -> str:
    """Returns what the code prints."""
    script = tmp_path / "script.py"
    script.write_text(INSIDE + code)
    (tmp_path / "disk").mkdir()
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    probe = ["sh", "-c", 'mount -t tmpfs none "$0"', str(tmp_path / "disk")]
    if subprocess.run([*unshare, *probe], capture_output=True).returncode != 0:
        pytest.skip("no user namespaces here, so no disk of one's own")
    done = subprocess.run(
        [*unshare, sys.executable, str(script), str(tmp_path / "disk")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@linux_only
@pytest.mark.parametrize("lives", ["", "ttlSecondsAfterFinished=100000"])
def test_the_last_word_finds_room(tmp_path: Path, lives: str) -> None:
    code = f"""
CHIEF = {CHIEF!r}
status = machine.run(job("chief", CHIEF, primary=True, backoffLimit=0, {lives}))
print(status.phase, status.reason, status.tasks[0].exit_code)
fill(here / "more")
print([status.phase.value for status in machine.backend.runs()])
machine.backend.delete("demo", "default")
print(machine.backend.runs())
"""
    assert on_a_small_disk(tmp_path, code).splitlines() == [
        "Failed BackoffLimitExceeded 3",
        "['Failed']",
        "[]",
    ]


@linux_only
def test_a_submission_that_finds_no_room_changes_nothing(tmp_path: Path) -> None:
    code = """
machine.run(job("chief", "print('before')", primary=True))
fill(here / "filling")
os.truncate(here / "filling", (here / "filling").stat().st_size - 100_000)
try:
    machine.submit(job("chief", "pass", primary=True))
except BackendError as error:
    print(error.message.replace(str(here), ""))
print(sorted(path.name for path in (here / "state" / "runs" / "default").iterdir()), machine.texts())
"""
    message, left = on_a_small_disk(tmp_path, code).splitlines()
    assert message.startswith("cannot keep the run's files under /state: No space left on device")
    assert left == "['demo', 'demo.lock'] ['before']", "the run before is still there"


@pytest.mark.parametrize("command", ["submit", "list", "delete"])
def test_what_killed_submissions_left_is_removed_by_the_next_command(machine: Machine, command: str) -> None:
    machine.run(job("chief", "pass", primary=True))
    space = machine.root / "runs" / "default"
    left = [space / f".demo.{new_uid()}", space / f".gone.{new_uid()}", space / ".old.removed"]
    for path in left:
        path.mkdir()
        (path / "reserve").write_bytes(b"x")
    (space / ".mine").mkdir()
    if command == "submit":
        machine.run(job("chief", "pass", primary=True))
    elif command == "list":
        machine.backend.runs()
    else:
        machine.backend.delete("demo", "default")
    assert not [path for path in left if path.exists()]
    assert (space / ".mine").is_dir(), "not of this program's making"
    assert not (space / "gone.lock").exists()


def test_a_submission_that_is_under_way_is_left_alone(machine: Machine) -> None:
    making = RunDirectory(machine.root, "default", "demo")
    lock = making.acquire()
    assert lock is not None
    path = making.path.with_name(f".demo.{new_uid()}")
    path.mkdir(parents=True)
    assert machine.backend.runs() == []
    assert path.is_dir()
    making.unlock(lock)
    assert machine.backend.runs() == []
    assert not path.exists()


def test_a_run_whose_folder_cannot_be_made_says_where(machine: Machine) -> None:
    machine.root.mkdir(parents=True)
    (machine.root / "runs").touch()
    with pytest.raises(BackendError, match="cannot keep the run's files under"):
        machine.submit(job("chief", "pass", primary=True))
