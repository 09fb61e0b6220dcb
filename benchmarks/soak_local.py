"""`benchmarks.soak` on this machine: what may befall a run there, and what would be left of it."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from benchmarks import processes
from launcher.backends.local import ports
from launcher.backends.local.process.processes import MARK
from launcher.backends.local.store import RunDirectory, default_root
from launcher.run import Run

_LASTING = {"ports.lock"}
"""Of the directory of all runs."""


@dataclass
class Local:
    """All runs below `root`, with their temporary files."""

    root: Path
    backend: Literal["local", "kubernetes"] = "local"
    image: str = ""
    ends: Mapping[str, Sequence[str]] = field(
        default_factory=lambda: {
            "nothing": ("Succeeded",),
            "task killed": ("Succeeded",),
            "follower killed": ("Succeeded",),
            "suspended": ("Succeeded",),
            "replaced": ("Succeeded",),
            "deleted": ("deleted",),
            # It may be over before.
            "submit killed": ("Failed", "Succeeded"),
            "Ctrl-C": ("Failed", "Succeeded"),
            "Ctrl-C twice": ("Failed", "Succeeded"),
            "supervisor killed": ("Lost", "Succeeded"),
            "guard killed": ("Failed", "Lost", "Succeeded"),
        }
    )
    environment: dict[str, str] = field(default_factory=dict)
    supervisors: list[tuple[float, float]] = field(default_factory=list)
    """Of each run that trains nothing: MB of the guard and of the supervisor, at their peak."""
    _uids: set[str] = field(default_factory=set)
    _ports: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begun(self, run: Run, is_training: bool) -> None:
        """See `soak_runs.Place`."""
        directory = RunDirectory(default_root(), run.namespace, run.name)
        submission, guard, supervisor = directory.submission(), *_keepers(directory)
        if submission is None:
            return
        with self._lock:
            self._uids.add(submission.uid)
            self._ports.update(int(local.rpartition(":")[2]) for local in submission.addresses.values())
            if not is_training and supervisor:
                self.supervisors.append((peak_megabytes(guard), peak_megabytes(supervisor)))

    def injure(self, kind: str, run: Run, chance: random.Random) -> None:
        """See `soak_runs.Place`."""
        directory = RunDirectory(default_root(), run.namespace, run.name)
        guard, supervisor = _keepers(directory)
        if kind == "task killed":
            submission = directory.submission()
            pids = processes.with_environment(f"{MARK}={submission.uid if submission else ''}/")
            tasks = sorted({variable for pid in pids if (variable := _mark(pid))})
            if tasks:
                processes.send(processes.with_environment(chance.choice(tasks)), signal.SIGKILL)
        elif supervisor:
            processes.send([supervisor if kind == "supervisor killed" else guard], signal.SIGKILL)

    def left(self) -> dict[str, list[str]]:
        """See `soak_runs.Place`. Asked when no run is going on."""
        marks = [f"{MARK}={uid}/" for uid in self._uids]
        # Pods have the mark, all else the launcher's own variable.
        pids = processes.with_environment(f"XDG_STATE_HOME={self.root}")
        pids += [pid for mark in marks for pid in processes.with_environment(mark)]
        paths = [path for path in self.root.rglob("*") if not path.is_dir() and path.name not in _LASTING]
        # Empty directories too, where each is a run's.
        paths += [*(self.root / "tmp").iterdir(), *(self.root / "tf-launcher" / "runs").glob("*/*")]
        return {
            "processes": [str(pid) for pid in sorted({*pids})],
            "ports": [str(port) for port in sorted(self._ports) if not ports.is_free(port)],
            "files": sorted({str(path) for path in paths}),
        }


@contextmanager
def local() -> Iterator[Local]:
    """With a state directory and a temporary directory of its own, this process' too."""
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        root = Path(name)
        (root / "tmp").mkdir()
        environment = {"XDG_STATE_HOME": name, "TMPDIR": str(root / "tmp")}
        before = tempfile.tempdir
        os.environ.update(environment)
        tempfile.tempdir = environment["TMPDIR"]
        try:
            yield Local(root, environment=environment)
        finally:
            tempfile.tempdir = before


def _keepers(directory: RunDirectory) -> tuple[int, int]:
    """The guard's process and the supervisor's; zeros where the run has ended."""
    state = directory.state()
    if state is None or state["ended"]:
        return 0, 0
    supervisor: int = state["supervisor"]
    try:
        stat = Path(f"/proc/{supervisor}/stat").read_text()
    except OSError:
        return 0, 0
    return int(stat.rpartition(")")[2].split()[1]), supervisor


def _mark(process: int) -> str:
    """Its variable MARK, whole."""
    try:
        variables = Path(f"/proc/{process}/environ").read_text(errors="replace").split("\0")
    except OSError:
        return ""
    return next((variable for variable in variables if variable.startswith(f"{MARK}=")), "")


def peak_megabytes(process: int) -> float:
    """Of resident memory; 0 where the process has ended."""
    return _megabytes(process, "VmHWM:")


def megabytes(process: int) -> float:
    """Of resident memory, now."""
    return _megabytes(process, "VmRSS:")


def _megabytes(process: int, name: str) -> float:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(name)), 0.0)
