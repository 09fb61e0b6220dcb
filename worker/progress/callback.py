"""Signs of life and progress records while `Model.fit` runs."""

from __future__ import annotations

import collections
import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from worker.progress.records import Records
from worker.reporting import Reporter, as_floats
from worker.tf_compat import remote_values
from worker.tf_compat.strategies import uses_coordinator

_POLL_SECONDS = 0.2


class Progress(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Counts the finished steps, and ends the training when the loss is not finite.

    Under ParameterServer the batch hooks run when a step is scheduled. Their logs are a RemoteValue, which
    gets its value when a worker has done the step and the chief has its results. A thread looks which
    RemoteValues are ready: that costs no message, while any read of a variable would wait for a ps.
    `reporter` is None for a task whose progress another task reports. `failed` is called in that thread with
    a step's error; `Model.fit` raises the error only when the steps on the other workers have ended too.
    """

    def __init__(
        self,
        reporter: Reporter | None,
        alive: Callable[[], None],
        stepped: Callable[[], None],
        failed: Callable[[BaseException], None],
        epochs: int,
    ) -> None:
        super().__init__()
        # With it Keras passes logs as they are, without waiting for their values.
        self._supports_tf_logs = True
        self._records = Records(reporter, epochs)
        self._alive = alive
        self._failed = failed
        self._stepped = stepped
        self._has_stepped = False
        self._lock = threading.Lock()
        self._pending: collections.deque[tuple[int, Any]] = collections.deque()
        self._scheduled = 0
        self._done = 0
        self._training = False
        self.skipped = 0
        """Steps of the epoch that an earlier attempt has done."""

    def on_train_begin(self, logs: Any = None) -> None:
        """Starts the thread under ParameterServer."""
        self._training = True
        if uses_coordinator(self.model.distribute_strategy):
            threading.Thread(target=self._watch, name="progress", daemon=True).start()

    def on_train_end(self, logs: Any = None) -> None:
        """Ends the thread."""
        self._training = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """`epoch` counts from 0."""
        self._alive()
        with self._lock:
            self._scheduled = 0
            self._done = self.skipped
            self._pending.clear()
            self._records.begin(epoch + 1, self._steps(), self.skipped)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Runs when an execution is done, or under ParameterServer when it is scheduled."""
        if isinstance(logs, Mapping):
            self._done = self.skipped + batch + 1
            self._moved()
            if self._records.due:
                metrics = as_floats(logs)
                self._records.check(metrics)
                self._records.write(self._done, metrics)
        else:
            with self._lock:
                self._pending.append((batch + 1 - self._scheduled, logs))
                self._scheduled = batch + 1

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Validation is a sign of life too."""
        self._alive()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Runs when all steps are done; `logs` are those of the epoch."""
        self._alive()
        with self._lock:
            self._pending.clear()
            self._done = self._steps() or self._done
            self._records.end(self._done, as_floats(logs))

    def _steps(self) -> int | None:
        """Returns the number of steps in the whole epoch."""
        steps = self.params.get("steps")
        return self.skipped + int(steps) if steps else None

    def _moved(self) -> None:
        if not self._has_stepped:
            self._has_stepped = True
            self._stepped()
        self._alive()

    def _watch(self) -> None:
        while self._training:
            time.sleep(_POLL_SECONDS)
            newest = self._collect()
            if newest is None:
                continue
            self._moved()
            if not self._records.due:
                continue
            with contextlib.suppress(tf.errors.OpError):
                metrics = as_floats(newest.fetch())  # its tensors are in this process already
                with self._lock:
                    if self._pending:
                        self._records.write(self._done, metrics)

    def _collect(self) -> Any:
        """Removes the finished steps from the queue. Returns the logs of the newest, None where no step
        finished.
        """
        newest = None
        with self._lock:
            while self._pending:
                steps, value = self._pending[0]
                if not remote_values.is_done(value):
                    break
                self._pending.popleft()
                error = remote_values.error_of(value)
                if error is not None:
                    self._training = False
                    self._failed(error)
                    return None
                self._done += steps
                newest = value
        return newest
