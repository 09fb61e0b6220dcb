"""An extra worker, which a queue admits by itself, leaves where the chief is away: the chief may wait for the
quota that it has. Its next pod stands behind the chief's in the queue.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from worker.contract.exit_codes import ExitCode
from worker.failures import Failure
from worker.peers import probes
from worker.task import Task

SECONDS: Final = 60.0
"""How long it waits. A chief whose pod is replaced is back sooner, mostly."""
_ROUND_SECONDS = 0.2


def patience(task: Task, seconds: float) -> float:
    """Returns how long this task waits for its chief, where others wait for `seconds`."""
    return min(SECONDS, seconds) if task.is_extra else seconds


def gives_way(seconds: float) -> Failure:
    """Returns the Failure of an extra worker that has waited for so long. It uses up no try."""
    message = f"the chief has not been there for {seconds:g} s: leaves its place in the queue to it"
    return Failure(message, ExitCode.PREEMPTED, in_place=False)


def wait_for_chief(task: Task, say: Callable[[str], None]) -> None:
    """Waits until the chief of an extra worker answers. Raises Failure where it does not come."""
    address = task.config.chief_address
    if address is None or probes.connects(address):
        return
    seconds = patience(task, task.config.starting_deadline_seconds)
    deadline = time.monotonic() + seconds
    say("waiting for the chief, which the queue may not have admitted yet")
    while not probes.connects(address):
        if time.monotonic() >= deadline:
            raise gives_way(seconds)
        time.sleep(_ROUND_SECONDS)
