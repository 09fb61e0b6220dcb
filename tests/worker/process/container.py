"""A real cgroup of this machine, as a container has one."""

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
from worker.process import cgroups


@contextlib.contextmanager
def cgroup(controller: str) -> Iterator[Path]:
    """Makes a cgroup in this process's own. Skips the test where that is not allowed."""
    around = cgroups.folders(controller)
    folder = around[0] / f"tf-launcher-test-{os.getpid()}" if around else Path("/nowhere")
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
        [sys.executable, "-c", f"{enter}{code}"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return ast.literal_eval(done.stdout)
