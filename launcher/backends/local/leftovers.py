"""What a run without a supervisor may have left running."""

from __future__ import annotations

from launcher.backends.local.pods import PROCESS_ANNOTATION
from launcher.backends.local.processes import kill_identified, kill_marked
from launcher.backends.local.store import RunDirectory


def kill_leftovers(directory: RunDirectory) -> None:
    """Kills the processes of the run that still live, and no others. The caller holds the run's lock."""
    submission = directory.submission()
    if submission is None:
        return
    kill_marked([f"{submission.uid}/"])
    pods = (directory.state() or {}).get("pods", [])
    kill_identified(
        [
            pod["metadata"]["annotations"][PROCESS_ANNOTATION]
            for pod in pods
            if pod["status"]["phase"] == "Running" and PROCESS_ANNOTATION in pod["metadata"]["annotations"]
        ]
    )
