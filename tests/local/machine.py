"""Runs of small commands, from objects like those that the launcher renders."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.base import LogLine, Plan, Selection
from launcher.backends.local.backend import LocalBackend
from launcher.backends.local.store import RunDirectory, SupervisorSettings
from launcher.status import RunStatus

TIMEOUT = 120.0
"""Limit in seconds for any wait of a test."""


def eventually(condition: Callable[[], Any], what: str) -> Any:
    """Waits until `condition` gives a true value, and returns it."""
    until = time.monotonic() + TIMEOUT
    while time.monotonic() < until:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what}: not after {TIMEOUT:g} s")


def python(code: str) -> list[str]:
    """Returns a container's command that runs this code."""
    return ["python", "-c", code]


def job(
    role: str,
    command: Sequence[str] | str,
    *,
    run: str = "demo",
    replicas: int = 1,
    env: Sequence[Mapping[str, Any]] = (),
    mounts: Mapping[str, Mapping[str, Any]] | None = None,
    primary: bool = False,
    grace: int = 5,
    container: Mapping[str, Any] | None = None,
    pod: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Returns a role's Job as the launcher renders it. `mounts` maps a mountPath to its volume's source."""
    labels = {"tf-launcher.dev/run": run, "tf-launcher.dev/role": role}
    volumes = {
        f"volume-{number}": (path, source) for number, (path, source) in enumerate((mounts or {}).items())
    }
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{run}-{role}",
            "namespace": "default",
            "labels": labels,
            "annotations": {"tf-launcher.dev/primary": "true"} if primary else {},
        },
        "spec": {
            "completionMode": "Indexed",
            "completions": replicas,
            "parallelism": replicas,
            "suspend": False,
            **spec,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never",
                    "subdomain": run,
                    "terminationGracePeriodSeconds": grace,
                    **(pod or {}),
                    "containers": [
                        {
                            "name": "tensorflow",
                            "command": python(command) if isinstance(command, str) else list(command),
                            "env": [
                                {"name": "TASK_INDEX", "valueFrom": {"fieldRef": {"fieldPath": index}}},
                                *env,
                            ],
                            "volumeMounts": [
                                {"name": name, "mountPath": path} for name, (path, _) in volumes.items()
                            ],
                            **(container or {}),
                        }
                    ],
                    "volumes": [{"name": name, **source} for name, (_, source) in volumes.items()],
                },
            },
        },
    }


@dataclass
class Machine:
    """A state directory, and the runs in it."""

    root: Path
    settings: SupervisorSettings
    backend: LocalBackend = field(init=False)

    def __post_init__(self) -> None:
        self.backend = LocalBackend(self.root, self.settings)

    def plan(self, *objects: dict[str, Any], run: str = "demo", addresses: Sequence[str] = ()) -> Plan:
        return Plan(run, "default", objects, addresses)

    def submit(self, *objects: dict[str, Any], run: str = "demo", addresses: Sequence[str] = ()) -> str:
        return self.backend.submit(self.plan(*objects, run=run, addresses=addresses), detach=True)

    def run(self, *objects: dict[str, Any], addresses: Sequence[str] = ()) -> RunStatus:
        """Submits a run and follows it to its end."""
        self.submit(*objects, addresses=addresses)
        return self.end()

    def end(self, run: str = "demo") -> RunStatus:
        """Returns the status at the run's end."""
        until = time.monotonic() + TIMEOUT
        for update in self.backend.follow(run, "default"):
            if update.status.ended:
                return update.status
            assert time.monotonic() < until, update.status
        raise AssertionError("the updates ended before the run")

    def status(self, run: str = "demo") -> RunStatus:
        return self.backend.status(run, "default")

    def lines(self, *roles: str, run: str = "demo") -> list[LogLine]:
        return list(self.backend.logs(run, "default", Selection(roles), follow=False))

    def texts(self, *roles: str, run: str = "demo") -> list[str]:
        return [line.text for line in self.lines(*roles, run=run)]

    def printed(self, text: str, run: str = "demo") -> None:
        """Waits until a task has printed this line."""
        eventually(lambda: text in self.texts(run=run), f"the line {text!r}")

    def directory(self, run: str = "demo") -> RunDirectory:
        return RunDirectory(self.root, "default", run)

    def processes(self, run: str = "demo") -> list[int]:
        """Returns all processes with the run's mark, whatever their parents are."""
        submission = self.directory(run).submission()
        assert submission is not None
        return marked(submission.uid)

    def supervisor(self, run: str = "demo") -> tuple[int, int]:
        """Returns the process ids of the guard and the supervisor."""
        state = eventually(lambda: self.directory(run).state(), "the supervisor's first word")
        supervisor: int = state["supervisor"]
        return parent(supervisor), supervisor


def pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def with_variable(beginning: str) -> list[int]:
    """Returns the processes with an environment variable `NAME=value...`; zombies have none."""
    processes = []
    for pid in pids():
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if pid != os.getpid() and any(variable.startswith(beginning.encode()) for variable in variables):
            processes.append(pid)
    return processes


def marked(uid: str) -> list[int]:
    """Returns all living processes of one submission."""
    return with_variable(f"TF_LAUNCHER_LOCAL={uid}/")


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
