"""What a run without a supervisor may have left running, and a supervisor that hears nothing."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from launcher.backends.local.pod.pods import PROCESS_ANNOTATION
from launcher.backends.local.process.processes import LINUX, kill_identified, kill_marked
from launcher.backends.local.store import BrokenRunError, RunDirectory


def end_keepers(directory: RunDirectory) -> None:
    """Tells the run's guard and supervisor to end it where the control pipe does not reach them, because
    something else is in its place. They, and they alone, run `guard.py` in the run's directory. Linux only.
    """
    for entry in os.scandir("/proc") if LINUX and directory.alive() else ():
        if entry.name.isdigit():
            try:
                here = Path(entry.path, "cwd").samefile(directory.path)
                if here and b"guard.py" in Path(entry.path, "cmdline").read_bytes():
                    os.kill(int(entry.name), signal.SIGTERM)
            except OSError:  # it has ended, or is another user's
                continue


def kill_leftovers(directory: RunDirectory) -> None:
    """Kills the processes of the run that still live, and no others. The caller holds the run's lock."""
    if (uid := directory.uid()) is None:
        return
    kill_marked([f"{uid}/"])
    try:
        pods = (directory.state() or {}).get("pods", [])
    except BrokenRunError:  # on Linux the mark has found them all
        return
    kill_identified(
        [
            pod["metadata"]["annotations"][PROCESS_ANNOTATION]
            for pod in pods
            if pod["status"]["phase"] == "Running" and PROCESS_ANNOTATION in pod["metadata"]["annotations"]
        ]
    )
