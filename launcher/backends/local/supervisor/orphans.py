"""Ends processes of a run whose supervisor is gone, or cannot be reached."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from launcher.backends.local.pod.pods import PROCESS_ANNOTATION
from launcher.backends.local.process.processes import LINUX, kill_identified, kill_marked
from launcher.backends.local.store import BrokenRunError, RunDirectory


def end_keepers(directory: RunDirectory) -> None:
    """Sends the run's guard and supervisor a signal to end the run, if its control pipe was removed. They are
    found as the only processes that run `guard.py` in the run's directory. Linux only.
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
    except BrokenRunError:  # on Linux they were found by MARK
        return
    kill_identified(
        [
            pod["metadata"]["annotations"][PROCESS_ANNOTATION]
            for pod in pods
            if pod["status"]["phase"] == "Running" and PROCESS_ANNOTATION in pod["metadata"]["annotations"]
        ]
    )
