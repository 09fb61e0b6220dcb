"""Progress records of this task, from any thread."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any

from worker import contract
from worker.contract import Event
from worker.failures import Failure


class Reporter:
    """Prints `contract.Record`s, one at a time."""

    def __init__(self, task: str) -> None:
        self.task = task
        self._lock = threading.Lock()

    def emit(self, event: str, **fields: Any) -> None:
        """One record, with the fields that `contract.Event` names."""
        with self._lock:
            contract.emit(event, self.task, **fields)

    def notice(self, message: str) -> None:
        """A sentence that the user should read."""
        self.emit(Event.NOTICE, message=message)

    def failed(self, failure: Failure) -> None:
        """The one record of what ended the task."""
        self.emit(Event.FAILED, **failed_fields(failure))


def failed_fields(failure: Failure) -> dict[str, Any]:
    """The fields of `Event.FAILED`."""
    return {
        "message": failure.message,
        "traceback": failure.frames,
        "exit_code": int(failure.exit_code),
    }


def as_floats(logs: Mapping[str, Any] | None) -> dict[str, float]:
    """Scalars of Keras' logs; tensors are read. Whatever is no scalar is left out."""
    floats = {}
    for name, value in (logs or {}).items():
        try:
            floats[name] = float(value)
        except (TypeError, ValueError):
            continue
    return floats


def not_finite(metrics: Mapping[str, float]) -> bool:
    """Whether the loss is NaN or infinite: nothing comes back from there."""
    return not math.isfinite(metrics.get("loss", 0.0))
