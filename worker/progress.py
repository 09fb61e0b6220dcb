"""Signs of life and progress records while `Model.fit` runs."""

from __future__ import annotations

import collections
import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from worker.contract import Event
from worker.failures import program_error
from worker.reporting import Reporter, as_floats, not_finite

RECORD_SECONDS = 1.0
_POLL_SECONDS = 0.2


class Progress(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Counts the steps that are done, and ends the training when the loss is not finite.

    Under ParameterServer the batch hooks run when a step is scheduled, and their logs are a RemoteValue,
    filled when a worker has done the step and its results have come back. A thread looks which are
    filled: that costs no message, while any read of a variable would wait for a ps.
    `reporter` is None for a task that has another one speak for it.
    `failed` hears, in that thread, of a step's error: `Model.fit` will raise it, but only when the steps on
    the other workers have ended too.
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
        # Logs come as they are, without waiting for them.
        self._supports_tf_logs = True
        self._reporter = reporter
        self._alive = alive
        self._epochs = epochs
        self._failed = failed
        self._stepped = stepped
        self._has_stepped = False
        self._lock = threading.Lock()
        self._pending: collections.deque[tuple[int, Any]] = collections.deque()
        self._epoch = 0
        self._scheduled = 0
        self._done = 0
        self._recorded_done = 0
        self._recorded_at = self._epoch_began = time.monotonic()
        self._metrics: dict[str, float] = {}
        self._training = False

    def on_train_begin(self, logs: Any = None) -> None:
        """Starts the thread under ParameterServer."""
        self._training = True
        if self.model.distribute_strategy._should_use_with_coordinator:
            threading.Thread(target=self._watch, name="progress", daemon=True).start()

    def on_train_end(self, logs: Any = None) -> None:
        """Ends it."""
        self._training = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Counts from 0."""
        self._alive()
        with self._lock:
            self._epoch = epoch + 1
            self._scheduled = self._done = self._recorded_done = 0
            self._pending.clear()
            self._metrics = {}
            self._recorded_at = self._epoch_began = time.monotonic()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """One execution was done, or scheduled."""
        if isinstance(logs, Mapping):
            self._done = batch + 1
            self._moved()
            if time.monotonic() - self._recorded_at >= RECORD_SECONDS:
                self._metrics = as_floats(logs)
                self._check()
                self._record()
        else:
            with self._lock:
                self._pending.append((batch + 1 - self._scheduled, logs))
                self._scheduled = batch + 1

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Validation is a sign of life too."""
        self._alive()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """All steps are done and `logs` are the epoch's."""
        self._alive()
        with self._lock:
            self._pending.clear()
            self._metrics = as_floats(logs)
            self._done = int(self.params.get("steps") or self._done)
            self._recorded_done, self._recorded_at = 0, self._epoch_began
        self._record(epoch_end=True)
        self._check()

    def _moved(self) -> None:
        if not self._has_stepped:
            self._has_stepped = True
            self._stepped()
        self._alive()

    def _check(self) -> None:
        if not_finite(self._metrics):
            raise program_error(
                f"the loss became {self._metrics['loss']} in epoch {self._epoch}; a smaller learning rate, "
                "clipped gradients or a look at the data may help"
            )

    def _record(self, epoch_end: bool = False) -> None:
        if self._reporter is None:
            return
        now = time.monotonic()
        seconds = max(1e-6, now - self._recorded_at)
        metrics = dict(self._metrics)
        self._reporter.emit(
            Event.PROGRESS,
            epoch=self._epoch,
            epochs=self._epochs,
            step=self._done,
            steps=self.params.get("steps"),
            steps_per_second=round((self._done - self._recorded_done) / seconds, 3),
            loss=metrics.pop("loss", None),
            metrics=metrics,
            epoch_end=epoch_end,
        )
        self._recorded_at, self._recorded_done = now, self._done

    def _watch(self) -> None:
        while self._training:
            time.sleep(_POLL_SECONDS)
            newest = self._collect()
            if newest is None:
                continue
            self._moved()
            if time.monotonic() - self._recorded_at < RECORD_SECONDS:
                continue
            with contextlib.suppress(tf.errors.OpError):
                metrics = as_floats(newest.fetch())  # its tensors are in this process already
                with self._lock:
                    if self._pending:
                        self._metrics = metrics
                        self._record()

    def _collect(self) -> Any:
        """Takes the steps that are done off the queue. Returns the newest one's logs, None for none."""
        newest = None
        with self._lock:
            while self._pending:
                steps, value = self._pending[0]
                # TensorFlow has no public way to ask without waiting.
                if value._status.name == "NOT_READY":
                    break
                self._pending.popleft()
                if value._error is not None:
                    self._training = False
                    self._failed(value._error)
                    return None
                self._done += steps
                newest = value
        return newest
