"""Keys and values that the tasks of a collective exchange through TensorFlow's coordination service."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from worker.contract.exit_codes import ExitCode
from worker.failures import Failure
from worker.peers import probes
from worker.tf_compat import connections
from worker.tf_compat.strategies import worker_count

_LOOK_SECONDS = 1.0
Agree = Callable[[int, bool], tuple[int, bool]]
_calls: Counter[str] = Counter()
ERRORS = (tf.errors.OpError, RuntimeError)
"""The errors of `put` and `get` when a task is lost."""


def by_first_task(strategy: Any, is_first: bool) -> Agree:
    """Returns a function that all tasks call equally often: it returns to each the value that the first task
    passed.

    In a run of one task, or under another strategy, it returns its argument.
    """
    if worker_count(strategy) == 1:
        return lambda number, settled: (number, settled)

    def agree(number: int, settled: bool) -> tuple[int, bool]:
        key = numbered("steps-per-execution")
        if is_first:
            put(key, f"{number} {int(settled)}")
            return number, settled
        given, is_settled = get(key).split()
        return int(given), is_settled == "1"

    return agree


def numbered(key: str) -> str:
    """Returns a key that is another one at each call. Tasks that call it equally often get the same."""
    _calls[key] += 1
    return f"{key}/{_calls[key]}"


def put(key: str, value: str) -> None:
    """Stores `value` for every task of the collective. Raises AlreadyExistsError where another task has done
    so.
    """
    connections.put_key(f"tf-launcher/{key}", value)


def forget(key: str) -> None:
    """Removes `key`, and the keys that begin with it and a slash."""
    connections.delete_key(f"tf-launcher/{key}")


def get(key: str) -> str:
    """Waits until some task has `put` a value under `key`, and returns it. TensorFlow does not end this where
    the task is lost: see `gather`.
    """
    return connections.get_key(f"tf-launcher/{key}")


def gather(
    keys: Sequence[str], peers: Mapping[str, str], doing: str, alive: Callable[[], None] = lambda: None
) -> list[str]:
    """Returns the values of `keys` once all are there. `peers` (pod name to address) are the tasks that put
    them; `alive` is called about once a second. Raises Failure (RETRYABLE) where one is lost `doing` that.
    """
    heard: queue.SimpleQueue[list[str] | BaseException] = queue.SimpleQueue()

    def listen() -> None:
        try:
            heard.put([get(key) for key in keys])
        except ERRORS as error:
            heard.put(error)

    threading.Thread(target=listen, name="gather", daemon=True).start()
    while True:
        with contextlib.suppress(queue.Empty):
            outcome = heard.get(timeout=_LOOK_SECONDS)
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome
        # A task that hangs is ended by its own supervisor, so an open port is enough.
        if gone := {name: why for name, address in peers.items() if (why := probes.absence(address))}:
            message = f"a task was lost while {doing}: {probes.described(gone)}"
            raise Failure(message, ExitCode.RETRYABLE)
        alive()
