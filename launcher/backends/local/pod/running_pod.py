"""A pod while it runs: its Pod object, kept as the kubelet would keep it, and its process."""

from __future__ import annotations

import signal
from typing import Any

from launcher.backends.local.pod.environment import ADDRESS
from launcher.backends.local.pod.pods import PROCESS_ANNOTATION
from launcher.backends.local.process.processes import MARK, Launch, Process, identity

_CANNOT_START = 128
"""The exit code that the container runtime gives a container whose command cannot be executed."""


class LivePod:
    """One attempt at one index of a Job. `job` is the Job's number; `object` becomes Kubernetes' Pod.

    `kill_at` is when a pod that was told to stop is killed; None before that and after.
    """

    def __init__(self, job: int, index: int, pod: dict[str, Any], grace: float) -> None:
        self.job = job
        self.index = index
        self.object = pod
        self.mark = ""
        self.stopping = False
        self.kill_at: float | None = None
        self._grace = grace
        self._process: Process | None = None
        self._exit_code: int | None = None

    def start(self, launch: Launch, container: str, now: str) -> None:
        """Raises OSError. `now` is a Kubernetes time, here and below."""
        self._process = Process(launch)
        self.mark = launch.env[MARK]
        self.object["metadata"]["annotations"][PROCESS_ANNOTATION] = identity(self._process.pid)
        self.object["status"].update(
            phase="Running",
            podIP=ADDRESS,
            startTime=now,
            conditions=[{"type": "Ready", "status": "True"}],
            containerStatuses=[
                {
                    "name": container,
                    "ready": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": now}},
                }
            ],
        )

    def cannot_start(self, container: str, message: str, now: str) -> None:
        """Writes that the pod could not start: the command does not exist, an argument is too long, or the
        disk is full.
        """
        terminated = {
            "exitCode": _CANNOT_START,
            "reason": "StartError",
            "message": message,
            "finishedAt": now,
        }
        status = self.object["status"]
        status.update(phase="Failed", startTime=now)
        status["containerStatuses"] = [
            {"name": container, "ready": False, "restartCount": 0, "state": {"terminated": terminated}}
        ]

    @property
    def pid(self) -> int:
        """0 before it is started."""
        return self._process.pid if self._process is not None else 0

    @property
    def exit_code(self) -> int | None:
        """Whether its end has been written."""
        containers: list[dict[str, Any]] = self.object["status"].get("containerStatuses") or [{}]
        terminated = (containers[0].get("state") or {}).get("terminated") or {}
        code: int | None = terminated.get("exitCode")
        return code

    def poll(self) -> bool:
        """Whether it has ended."""
        if self._process is not None and self._exit_code is None:
            self._exit_code = self._process.poll()
        return self._exit_code is not None

    def set_ended(self, now: str) -> None:
        """Writes the end into the object. A pod that could not start has it already."""
        if self._exit_code is None:
            return
        status = self.object["status"]
        container = status["containerStatuses"][0]
        container["ready"] = False
        container["state"] = {
            "terminated": {
                "exitCode": self._exit_code,
                "reason": "Completed" if self._exit_code == 0 else "Error",
                "startedAt": container["state"]["running"]["startedAt"],
                "finishedAt": now,
            }
        }
        status["phase"] = "Succeeded" if self._exit_code == 0 else "Failed"
        status["conditions"] = [{"type": "Ready", "status": "False"}]

    def stop(self, now: float, at: str, reason: str) -> bool:
        """SIGTERM, and the grace begins. False when that has been done. `now` is monotonic, `at` the same
        as a Kubernetes time.
        """
        if self.stopping or self._process is None:
            return False
        self.stopping = True
        self.kill_at = now + self._grace
        self.object["metadata"].update(deletionTimestamp=at, deletionGracePeriodSeconds=self._grace)
        self.object["status"]["reason"] = reason
        self._process.signal(signal.SIGTERM)
        # A stopped process (SIGSTOP, Ctrl-Z) would not handle SIGTERM before its grace period is over.
        self._process.signal(signal.SIGCONT)
        return True

    def crash(self) -> None:
        """SIGKILL to its whole group, which is not the run's doing: for its Job it has failed."""
        if self._process is not None:
            self._process.signal(signal.SIGKILL)

    def kill(self) -> None:
        """SIGKILL to its whole group."""
        self.stopping = True
        self.kill_at = None
        if self._process is not None:
            self._process.signal(signal.SIGKILL)
