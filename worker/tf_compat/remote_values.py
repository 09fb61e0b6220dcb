"""A coordinator's RemoteValue, asked without waiting for it: its public get() waits without a limit."""

from __future__ import annotations

from typing import Any


def is_done(value: Any) -> bool:
    """Whether `value` will not change any more: it has failed, or is in this process.

    A worker that is lost before it was fetched does the execution again, though its status was READY.
    """
    if value._status.name == "NOT_READY":
        return False
    return bool(value._error is not None or value._has_fetched_to_local)


def error_of(value: Any) -> BaseException | None:
    """What the execution of a `value` that is done has raised."""
    error: BaseException | None = value._error
    return error


def wait(value: Any, seconds: float | None = None) -> bool:
    """Until a worker has finished with `value`, whatever came of it. Returns false after `seconds`."""
    return bool(value._status_available_event.wait(seconds))
