"""The table of how runs end, tested with the supervisor of this machine and its processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.local.store import SupervisorSettings
from launcher.object_names import NEEDED_ANNOTATION
from launcher.status import Phase, RunStatus
from tests.local.machine import Machine, eventually, job, python
from tests.run_end_cases import Case, Other, each_case, play, stopped

AS_TOLD = """\
import pathlib, sys, time
path = pathlib.Path({path!r})
while not path.exists():
    time.sleep(0.01)
sys.exit(int(path.read_text()))
"""
"""A program that ends with the exit code in a file, once the file exists."""

RUNTIME = ["-m", "worker"]
"""The last arguments of a command, which mark the image as the worker runtime's."""


class Processes:
    """The run of a case on this machine."""

    def __init__(self, machine: Machine, case: Case, folder: Path) -> None:
        self._machine = machine
        self._folder = folder
        # A role that waits for its next try waits until the end of the test.
        settings = SupervisorSettings(**asdict(case.limits), backoff=600.0, backoff_limit=600.0)
        self._machine = Machine(machine.root, settings)
        jobs = [self._job("chief", Other(), primary=True)]
        jobs += [self._job(role, other) for role, other in case.others.items()]
        self._machine.submit(*jobs)
        self.until(lambda status: status.all_run)
        for role, other in case.others.items():
            if other.does == "waits":
                self.end(role, 1)
                self.until(lambda status, role=role: _failed(status, role) == 1)  # type: ignore[misc]

    def _job(self, role: str, other: Other, *, primary: bool = False) -> dict[str, Any]:
        command = python(AS_TOLD.format(path=str(self._folder / role)))
        tries = 5 if other.does == "waits" else 0
        made = job(role, [*command, *RUNTIME * other.leaves], primary=primary, backoffLimit=tries)
        if other.needed is not None:
            made["metadata"]["annotations"][NEEDED_ANNOTATION] = str(other.needed).lower()
        return made

    def end(self, role: str, exit_code: int) -> None:
        """See `Stage.end`."""
        unfinished = self._folder / f"{role}.new"
        unfinished.write_text(str(exit_code))
        unfinished.rename(self._folder / role)

    def until(self, condition: Callable[[RunStatus], bool]) -> RunStatus:
        """See `Stage.until`."""

        def holds() -> RunStatus | None:
            status = self._machine.status()
            return status if condition(status) else None

        status = eventually(holds, "what the case waits for")
        assert isinstance(status, RunStatus)
        return status


def _failed(status: RunStatus, role: str) -> int:
    return next(each.failed for each in status.roles if each.role == role)


@pytest.mark.by_day(
    "without-its-evaluator-a-run-goes-on",
    "without-its-parameter-servers-a-run-cannot-go-on",
    "the-evaluator-has-longer-than-the-servers",
    "cleanPolicy-All-stops-the-same",
)
@each_case
def test_a_run_ends_as_the_policy_says(machine: Machine, tmp_path: Path, case: Case) -> None:
    status = play(case, Processes(machine, case, tmp_path))
    assert status.phase is case.phase
    assert stopped(status) == case.words("demo", may_go_on=False)
    assert all(role.phase in (Phase.SUCCEEDED, Phase.FAILED) for role in status.roles)
    assert machine.processes() == []
