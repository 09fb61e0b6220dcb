"""Keys and values that the tasks of a collective exchange through TensorFlow's coordination service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from worker.tf_compat import connections
from worker.tf_compat.strategies import worker_count

Agree = Callable[[int, bool], tuple[int, bool]]
ERRORS = (tf.errors.OpError, RuntimeError)
"""The errors of `put` and `get` when a task is lost."""


def by_first_task(strategy: Any, is_first: bool) -> Agree:
    """Returns a function that all tasks call equally often: it returns to each the value that the first task
    passed.

    In a run of one task, or under another strategy, it returns its argument.
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
    """Stores `value` for every task of the collective. Raises AlreadyExistsError where another task has done
    so.
    """
    connections.put_key(f"tf-launcher/{key}", value)


def get(key: str) -> str:
    """Waits until some task has `put` a value under `key`, and returns it."""
    return connections.get_key(f"tf-launcher/{key}")
