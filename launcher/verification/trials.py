"""Trainings of a few steps on this machine, in a folder of their own that is removed."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from launcher import plan_of_file, program_check
from launcher.backends import run_facts
from launcher.backends.local.backend import LocalBackend
from launcher.backends.local.pod.pods import tasks_python
from launcher.errors import LauncherError, NotFoundError
from launcher.sentences import ending
from launcher.status import Phase, RunStatus
from launcher.validation.loader import Loaded
from launcher.verification.two_runs import ONE
from worker.contract.exit_codes import ExitCode
from worker.contract.run_config import Verification

_NAMESPACE: Final = "default"


class TrainingFailed(LauncherError):  # noqa: N818 - named for what has happened
    """A training of the comparison has failed, as the run itself would."""


class Trials:
    """Trainings in a folder of their own."""

    def __init__(self, folder: Path, steps: int, allow_network: bool) -> None:
        self._folder, self._steps = folder, steps
        self._backend = LocalBackend(folder / "runs", allow_network=allow_network)
        self._started: list[str] = []

    def train(self, runs: Mapping[str, tuple[Loaded, frozenset[str], bool]]) -> list[Path]:
        """Trains all at once: each is a file, what is left out of its model, and whether its weights are off.
        Returns their model directories.
        """
        for name, (loaded, without, perturbed) in runs.items():
            wanted = Verification(self._steps, sorted(without), perturbed)
            metadata = loaded.cluster.metadata.model_copy(update={"name": name})
            cluster = loaded.cluster.model_copy(update={"metadata": metadata})
            plan = plan_of_file.submission(replace(loaded, cluster=cluster), None, _NAMESPACE)
            objects = run_facts.with_config(plan.objects, verification=wanted)
            self._started.append(name)
            self._backend.submit(replace(plan, objects=objects), detach=False)
        return [self._ended(name) for name in runs]

    def compare(self, one: Path, other: Path, control: Path | None = None) -> list[dict[str, Any]]:
        """Returns what `worker.comparison` prints, which needs the packages of the tasks' Python."""
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        environment = {**os.environ, "PYTHONPATH": program_check.runtime_path(folder / "runtime")}
        paths = [str(path) for path in (one, other, control) if path is not None]
        done = subprocess.run(
            [tasks_python(), "-m", "worker.comparison", *paths],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise TrainingFailed(f"the trainings cannot be compared: {done.stderr.strip()[-500:]}")
        fits: list[dict[str, Any]] = json.loads(done.stdout)
        return fits

    def end(self) -> None:
        """Ends what still runs, and removes it."""
        for name in self._started:
            with contextlib.suppress(NotFoundError):
                self._backend.stop(name, _NAMESPACE, at_once=True)
                self._backend.delete(name, _NAMESPACE)

    def _ended(self, name: str) -> Path:
        status: RunStatus | None = None
        for update in self._backend.follow(name, _NAMESPACE):
            status = update.status
        if status is None or status.phase is not Phase.SUCCEEDED:
            raise self._failure(name, status)
        return Path(self._backend.places(name, _NAMESPACE)["model directory"])

    @staticmethod
    def _failure(name: str, status: RunStatus | None) -> TrainingFailed:
        how = "the training in one process" if name == ONE else "the training by the strategy"
        if status is None:
            return TrainingFailed(f"{how} has failed")
        failed = [task for task in status.tasks if task.exit_code]
        # The others have lost the task whose program is wrong.
        failed.sort(key=lambda task: task.exit_code != ExitCode.PROGRAM_ERROR)
        for task in failed:
            if (record := status.failure_record(task)) is not None:
                return TrainingFailed(f"{how} has failed: {record.message}", record.traceback.rstrip())
        reason = ", ".join(f"{task.name} {ending(task)}" for task in failed) or str(status.phase)
        return TrainingFailed(f"{how} has failed: {reason}")


@contextlib.contextmanager
def trials(steps: int, allow_network: bool) -> Iterator[Trials]:
    """Opens a folder for trainings of so many steps. Nothing of them is left at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="tf-launcher-verify-") as folder:
        made = Trials(Path(folder), steps, allow_network)
        try:
            yield made
        finally:
            made.end()
