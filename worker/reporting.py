"""Emits the progress records of this task, from any thread."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from typing import Any

from worker.contract import records
from worker.contract.records import Content, Failed, Notice
from worker.failures import Failure


class Reporter:
    """Prints `Record`s, one at a time. `tell` gets each line, too."""

    def __init__(self, task: str, tell: Callable[[str], None] = lambda _: None) -> None:
        self.task = task
        self._tell = tell
        self._lock = threading.Lock()

    def emit(self, content: Content) -> None:
        """Prints one record."""
        with self._lock:
            self._tell(records.emit(self.task, content))

    def notice(self, message: str) -> None:
        """Emits a sentence that the user should read."""
        self.emit(Notice(message))

    def failed(self, failure: Failure) -> None:
        """Emits the one record of the error that ended the task."""
        self.emit(failed(failure))


def failed(failure: Failure, exit_code: int | None = None) -> Failed:
    """Returns the record of a failure; `exit_code` None stands for the failure's own."""
    return Failed(failure.message, failure.frames, int(failure.exit_code if exit_code is None else exit_code))


def as_floats(logs: Mapping[str, Any] | None) -> dict[str, float]:
    """Returns the scalars of Keras' logs, and reads tensors. It leaves out all values that are no scalars."""
    return {name: value for name, value in as_numbers(logs).items() if isinstance(value, float)}


def as_numbers(logs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns Keras' logs, and reads tensors: scalars as floats, and vectors, which a metric with a number
    for each class gives, as arrays. It leaves out what has no numbers.
    """
    import numpy as np

    numbers: dict[str, Any] = {}
    for name, value in (logs or {}).items():
        try:
            numbers[name] = float(value)
        except (TypeError, ValueError):
            array = np.asarray(value)
            if array.size and array.dtype.kind in "biuf":
                numbers[name] = array
    return numbers


def not_finite(metrics: Mapping[str, float]) -> bool:
    """Returns whether the loss is NaN or infinite, after which training cannot recover."""
    return not math.isfinite(metrics.get("loss", 0.0))
