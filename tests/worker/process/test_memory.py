"""What a process finds out of the limits of its container, in a real cgroup of this machine."""

from __future__ import annotations

import ast
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worker.cluster import ROOT
from worker.process import memory

LIMIT = 256 << 20
FILES = ("memory.max", "memory.limit_in_bytes")
QUOTAS = (("cpu.max", "10000 100000"), ("cpu.cfs_quota_us", "10000"))


@contextlib.contextmanager
def cgroup(controller: str) -> Iterator[Path]:
    """Makes a cgroup in this process's own. Skips the test where that is not allowed."""
    cgroups = memory._cgroups(controller)
    folder = cgroups[0] / f"tf-launcher-test-{os.getpid()}" if cgroups else Path("/nowhere")
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        yield folder
    finally:
        until = time.monotonic() + 10
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                folder.rmdir()
                break
            time.sleep(0.05)


def write(folder: Path, *values: tuple[str, str]) -> None:
    """Writes the first of the files that is there: they differ by the version of cgroups."""
    for name, value in values:
        if (folder / name).exists():
            (folder / name).write_text(value)
            return
    pytest.skip(f"{folder} has none of {', '.join(name for name, _ in values)}")


def inside(folder: Path, code: str) -> Any:
    """Returns what a process in the cgroup prints."""
    enter = f"open({str(folder / 'cgroup.procs')!r}, 'w').write('0')\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{enter}from worker.process import memory\n{code}"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return ast.literal_eval(done.stdout)


def test_the_limit_and_what_is_used_of_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(64 << 20))
    read = f"open({str(tmp_path / 'file')!r}, 'rb').read(); had = bytearray(100 << 20)"
    with cgroup("memory") as folder:
        write(folder, *((name, str(LIMIT)) for name in FILES))
        printed = inside(folder, f"{read}; print((memory.of_container(), memory.limit()))")
    (used, most), limit = printed
    assert most == limit == LIMIT
    # What Linux keeps of the file does not count: it takes that back.
    assert 100 << 20 < used < 150 << 20


def test_a_process_that_the_limit_on_cpu_holds_up() -> None:
    code = """
import time
before, until = memory.throttled(), time.monotonic() + 1.0
while time.monotonic() < until: pass
print(memory.throttled() - before)
"""
    with cgroup("cpu") as folder:
        write(folder, *QUOTAS)
        seconds = inside(folder, code)
    assert seconds > 0.3  # it may have a tenth of a processor
