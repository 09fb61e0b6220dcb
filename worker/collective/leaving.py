"""The end of a collective training: in which order its tasks leave."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from worker.collective import peer_connections
from worker.contract.exit_codes import ExitCode
from worker.failures import Failure
from worker.peers import probes
from worker.process.activity import Activity
from worker.task import Task

_OUTLIVE_SECONDS = 30.0
_FINISHED = "finished"


def leave_together(task: Task, activity: Activity, alive: Callable[[], None]) -> None:
    """Waits at the end of a collective training until the first task has finished. The first task still
    writes checkpoints and exports when the others have nothing left to do. A task that has left with code 0
    would not come back if that failed and had to be tried again.

    Raises Failure (RETRYABLE) where the first task is lost.
    """
    if not task.config.is_collective or not task.peers:
        return
    from worker.collective import kv_store

    if task.is_primary:
        peer_connections.end()
        with contextlib.suppress(*kv_store.ERRORS):  # another task is gone; that one looks by itself
            kv_store.put(_FINISHED, "yes")
        leave_last(task, activity)
        return
    activity.enter("waiting for the first task to finish")
    first = task.config.chief_address
    peers = {} if first is None else {"the first task": first}
    try:
        kv_store.gather([_FINISHED], peers, "waiting for it to finish", alive)
    except (Failure, *kv_store.ERRORS) as error:
        raise Failure("the first task was lost before it had finished", ExitCode.RETRYABLE) from error
    peer_connections.end()


def leave_last(task: Task, activity: Activity) -> None:
    """Waits in the first task, for at most 30 s, until no other task is there. The first task hosts the
    coordination service of a collective run.
    """
    if not task.config.is_collective or not task.is_primary:
        return
    activity.enter("waiting for the other tasks to leave")
    deadline = time.monotonic() + _OUTLIVE_SECONDS
    while time.monotonic() < deadline:
        if not any(probes.connects(address) for address in task.peers.values()):
            return
        time.sleep(0.1)
