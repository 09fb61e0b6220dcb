"""Reads the state of a coordinator's RemoteValue. Its public get() waits without a limit."""

from __future__ import annotations

from typing import Any

from worker.tf_compat import connections


def is_done(value: Any) -> bool:
    """Returns whether `value` is final: it has failed, or is in this process.

    If a worker is lost before its value was fetched, the execution is repeated, although its status was
    READY.
    """
    if value._status.name == "NOT_READY":
        return False
    return bool(value._error is not None or value._has_fetched_to_local)


def error_of(value: Any) -> BaseException | None:
    """Returns the error of the execution of a `value` that is done."""
    error: BaseException | None = value._error
    return error


def wait(value: Any, seconds: float | None = None) -> bool:
    """Waits until a worker has finished with `value`, with or without an error. Returns false after
    `seconds`.
    """
    with connections.unused():
        return bool(value._status_available_event.wait(seconds))
