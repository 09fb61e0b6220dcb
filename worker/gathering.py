"""Before the work: waiting for the other tasks. After it: who may leave first."""

from __future__ import annotations

import time
from collections.abc import Callable

from worker import peers
from worker.contract import Event, ExitCode
from worker.failures import Failure
from worker.reporting import Reporter
from worker.stage import Stage
from worker.task import Task

_OUTLIVE_SECONDS = 30.0


def gather(task: Task, stage: Stage, reporter: Reporter, alive: Callable[[], None]) -> None:
    """Until every peer answers. Raises Failure (RETRYABLE) that names those who do not."""
    if not task.peers:
        return
    deadline = task.config.starting_deadline_seconds

    def report(names: list[str], seconds: float) -> None:
        reporter.emit(Event.WAITING, tasks=names, seconds=round(seconds, 1), deadline=deadline)

    stage.enter("waiting for the other tasks")
    # Tasks of a collective strategy have no server while they wait for one another.
    check = peers.fault if task.config.strategy == "ParameterServer" else _absence
    try:
        with peers.listening(task.address):
            peers.wait(task.peers, deadline, report, alive, check)
    except peers.Unanswered as error:
        raise Failure(f"{error} (startingDeadlineSeconds)", ExitCode.RETRYABLE) from error


def leave_last(task: Task, stage: Stage) -> None:
    """The first task of a collective run hosts its coordination service: it waits, for at most 30 s, until
    nobody else is there.
    """
    if task.config.strategy != "MultiWorkerMirrored" or not task.is_primary:
        return
    stage.enter("waiting for the other tasks to leave")
    deadline = time.monotonic() + _OUTLIVE_SECONDS
    while time.monotonic() < deadline:
        if not any(peers.connects(address) for address in task.peers.values()):
            return
        time.sleep(0.1)


def _absence(address: str) -> str | None:
    return None if peers.connects(address) else "nothing listens on its port"
