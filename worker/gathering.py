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
    try:
        wait_for_all(task, task.config.starting_deadline_seconds, stage, reporter, alive)
    except peers.Unanswered as error:
        raise unanswered(error) from error


def wait_for_all(
    task: Task, seconds: float, stage: Stage, reporter: Reporter, alive: Callable[[], None]
) -> None:
    """Until every peer answers, for at most `seconds`. Raises `peers.Unanswered`."""
    if not task.peers:
        return

    def report(names: list[str], waited: float) -> None:
        deadline = task.config.starting_deadline_seconds
        reporter.emit(Event.WAITING, tasks=names, seconds=round(waited, 1), deadline=deadline)

    stage.enter("waiting for the other tasks")
    # Tasks of a collective strategy have no server while they wait for one another.
    check = peers.fault if task.config.strategy == "ParameterServer" else _absence
    with peers.listening(task.address):
        peers.wait(task.peers, seconds, report, alive, check)


def unanswered(error: peers.Unanswered) -> Failure:
    """What a task says that waited in vain."""
    return Failure(f"{error} (startingDeadlineSeconds)", ExitCode.RETRYABLE)


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
