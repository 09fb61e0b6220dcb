"""Tasks wait for one another before their work begins, under any strategy."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

from worker.contract.exit_codes import ExitCode
from worker.contract.records import Waiting
from worker.contract.run_config import ElasticWorkers
from worker.contract.task_names import DATA_WORKER, DISPATCHER, pod_name
from worker.failures import Failure
from worker.peers import probes
from worker.process.activity import Activity
from worker.reporting import Reporter
from worker.task import Task

_SETTLING_SECONDS = 2.0
"""Pods that are created together are ready within about as long of one another."""
_NAMED = 3
_ANY_DATA_WORKER = "any data-worker"


Check = Callable[[str], "str | None"]


def gather(
    task: Task,
    activity: Activity,
    reporter: Reporter,
    alive: Callable[[], None],
    check: Check | None = None,
) -> None:
    """Waits until every peer answers `check`, None for the strategy's own. Raises Failure (RETRYABLE) that
    names those that do not.
    """
    seconds = task.config.starting_deadline_seconds
    try:
        wait_for_peers(task, seconds, activity, reporter, alive, check)
    except probes.Unanswered as error:
        raise unanswered(task, error) from error


def wait_for_peers(
    task: Task,
    seconds: float,
    activity: Activity,
    reporter: Reporter,
    alive: Callable[[], None],
    check: Check | None = None,
) -> dict[str, str]:
    """Waits until every peer answers, and the data service, for at most `seconds`; in an elastic run, until
    enough workers do. Returns the workers that are not there, and why. Raises `probes.Unanswered`. For
    `check` see `gather`.
    """
    peers = {**task.peers, **_data_service(task)}
    if not peers:
        return {}

    def report(reasons: Mapping[str, str], waited: float) -> None:
        deadline = task.config.starting_deadline_seconds
        reporter.emit(Waiting(list(reasons), round(waited, 1), deadline, _by_reason(reasons)))

    activity.enter("waiting for the other tasks")
    # Tasks of a collective strategy have no server while they wait for one another.
    check = check or (probes.fault if task.config.is_coordinated else probes.absence)
    with probes.listening(task.address):
        answers = partial(_one_of, check)
        if task.elastic is None:
            return probes.wait(peers, seconds, report, alive, answers)
        return probes.wait(peers, seconds, report, alive, answers, _Enough(task, task.elastic))


def _data_service(task: Task) -> dict[str, str]:
    """Returns the dispatcher and its address; and the data workers together, of which one is enough, with all
    their addresses. They are those that a training task waits for.
    """
    service = task.config.data_service
    if service is None:
        return {}
    name = pod_name(task.config.run, DATA_WORKER, 0) if len(service.workers) == 1 else _ANY_DATA_WORKER
    return {
        pod_name(task.config.run, DISPATCHER, 0): service.dispatcher,
        name: " ".join(service.workers),
    }


def _one_of(check: Callable[[str], str | None], addresses: str) -> str | None:
    """Returns why none of `addresses`, which are separated by spaces, can be used; None where one can."""
    reason = None
    for address in addresses.split():
        reason = check(address)
        if reason is None:
            return None
    return reason


def unanswered(task: Task, error: probes.Unanswered) -> Failure:
    """Returns the failure of a task whose peers did not answer in time."""
    message = f"{error} (startingDeadlineSeconds)"
    if task.elastic is not None:
        came = task.elastic.max - len(_workers(task) & set(error.missing))
        message = f"{came} of at least {task.elastic.min} workers came (minReplicas): {message}"
    return Failure(message, ExitCode.RETRYABLE, in_place=False)


class _Enough:
    """Says when an elastic run begins: when all ps and all workers that were asked for are there; or with
    fewer, but at least the minimum, when no more have come for a while.
    """

    def __init__(self, task: Task, elastic: ElasticWorkers) -> None:
        self._workers = _workers(task)
        self._elastic = elastic
        self._came = 0
        self._since = 0.0

    def __call__(self, missing: Mapping[str, str]) -> bool:
        if missing.keys() - self._workers:
            return False
        came, now = len(self._workers - missing.keys()), time.monotonic()
        if came != self._came:
            self._came, self._since = came, now
        settled = now - self._since >= _SETTLING_SECONDS
        return came >= self._elastic.replicas or (came >= self._elastic.min and settled)


def _workers(task: Task) -> set[str]:
    return {task.pod("worker", worker) for worker in task.cluster.get("worker", {})}


def _by_reason(reasons: Mapping[str, str]) -> dict[str, list[str]]:
    """Groups the tasks by reason, and keeps only the first of each, since thousands may wait for
    thousands.
    """
    names_by_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names = names_by_reason.setdefault(reason, [])
        if len(names) < _NAMED:
            names.append(name)
    return names_by_reason
