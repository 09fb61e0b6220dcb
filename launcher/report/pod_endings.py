"""How a pod ended, in a few words."""

from __future__ import annotations

import signal
from typing import Final

from launcher.status import TaskStatus
from worker.contract.exit_codes import ExitCode

_OF_REASON: Final = {
    "OOMKilled": "out of memory",
    "Evicted": "evicted",
    "Preempted": "preempted",
    "PreemptionByScheduler": "preempted",
    "EvictionByEvictionAPI": "evicted",
    "DeletionByTaintManager": "its node went away",
    "DeletionByPodGC": "its node went away",
    "TerminationByKubelet": "its node shut down",
    "NodeLost": "its node went away",
    "NodeShutdown": "its node shut down",
    "Terminated": "its node shut down",
    "StartError": "could not be started",
}

_OF_CODE: Final = {
    int(ExitCode.PROGRAM_ERROR): "the program failed",
    int(ExitCode.RETRYABLE): "lost another task, or stalled",
    128 + signal.SIGKILL: "killed",
    int(ExitCode.PREEMPTED): "stopped by SIGTERM",
}


def ending(task: TaskStatus) -> str:
    """How a failed pod ended: `killed`, `out of memory`, `exit code 3`."""
    if task.reason in _OF_REASON:
        return _OF_REASON[task.reason]
    code = task.exit_code
    if code is None:
        return task.reason.lower() if task.reason else "gone"
    if code in _OF_CODE:
        return _OF_CODE[code]
    try:
        return f"exit code {code}" + (f", {signal.Signals(code - 128).name}" if code > 128 else "")
    except ValueError:
        return f"exit code {code}"
