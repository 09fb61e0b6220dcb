"""What the tasks of a collective tell each other, by TensorFlow's coordination service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from worker.tf_compat import connections
from worker.tf_compat.strategies import worker_count

Agree = Callable[[int, bool], tuple[int, bool]]
ERRORS = (tf.errors.OpError, RuntimeError)
"""What `put` and `get` raise where a task is lost."""


def by_first_task(strategy: Any, is_first: bool) -> Agree:
    """A function that all tasks call equally often: it gives each what the first one passed.

    In a run of one task, or under another strategy, it gives back what it gets.
    """
    if worker_count(strategy) == 1:
        return lambda number, settled: (number, settled)
    calls = 0

    def agree(number: int, settled: bool) -> tuple[int, bool]:
        nonlocal calls
        calls += 1
        key = f"steps-per-execution/{calls}"
        if is_first:
            put(key, f"{number} {int(settled)}")
            return number, settled
        given, is_settled = get(key).split()
        return int(given), is_settled == "1"

    return agree


def put(key: str, value: str) -> None:
    """Tells every task of the collective. Raises AlreadyExistsError where another one has."""
    connections.put_key(f"tf-launcher/{key}", value)


def get(key: str) -> str:
    """What a task has `put` there; waits for it."""
    return connections.get_key(f"tf-launcher/{key}")
