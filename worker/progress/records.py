"""Progress records of a training loop: some while an epoch runs, one at its end."""

from __future__ import annotations

import time
from collections.abc import Mapping

from worker.contract.records import Progress
from worker.failures import program_error
from worker.reporting import Reporter, not_finite

RECORD_SECONDS = 1.0


class Records:
    """Writes the records of `epochs` epochs. `reporter` is None for a task whose progress another task
    reports. A loss that is not finite ends a training that `must_be_finite`.
    """

    def __init__(self, reporter: Reporter | None, epochs: int, *, must_be_finite: bool = True) -> None:
        self._reporter = reporter
        self._epochs = epochs
        self._must_be_finite = must_be_finite
        self._is_told = False
        self._epoch = 0
        self._steps = 0
        self._skipped = 0
        self._recorded = 0
        self._recorded_at = self._began = time.monotonic()

    def begin(self, epoch: int, steps: int, skipped: int = 0) -> None:
        """Begins `epoch`, from 1, with `steps` steps. An earlier attempt did `skipped` of
        them.
        """
        self._epoch, self._steps, self._skipped = epoch, steps, skipped
        self._recorded = skipped
        self._recorded_at = self._began = time.monotonic()

    @property
    def due(self) -> bool:
        """Returns whether the last record is a second old."""
        return time.monotonic() - self._recorded_at >= RECORD_SECONDS

    def check(self, metrics: Mapping[str, float]) -> None:
        """Raises Failure where the loss must be finite and is not. Another one is told once."""
        if not not_finite(metrics):
            return
        became = f"the loss became {metrics['loss']} in epoch {self._epoch}"
        advice = "a smaller learning rate, clipped gradients or a look at the data may help"
        if self._must_be_finite:
            raise program_error(f"{became}; {advice}")
        if self._reporter is not None and not self._is_told:
            self._is_told = True
            self._reporter.notice(
                f"{became}, and the script trains on, as in one process, unless fit() was given "
                f"keras.callbacks.TerminateOnNaN(); {advice}"
            )

    def write(self, done: int, metrics: Mapping[str, float]) -> None:
        """Writes a record: `done` steps of the epoch are done, `skipped` ones included."""
        self._emit(done, metrics, self._recorded, self._recorded_at, epoch_end=False)

    def end(self, done: int, metrics: Mapping[str, float], learning_rate: float | None = None) -> None:
        """Writes the record of the epoch's end with its `metrics`."""
        self._emit(done, metrics, self._skipped, self._began, epoch_end=True, learning_rate=learning_rate)

    def _emit(
        self,
        done: int,
        metrics: Mapping[str, float],
        before: int,
        since: float,
        *,
        epoch_end: bool,
        learning_rate: float | None = None,
    ) -> None:
        now = time.monotonic()
        self._recorded, self._recorded_at = done, now
        if self._reporter is None:
            return
        progress = Progress(
            epoch=self._epoch,
            epochs=self._epochs,
            step=done,
            steps=self._steps,
            steps_per_second=round((done - before) / max(1e-6, now - since), 3),
            loss=metrics.get("loss"),
            metrics={name: value for name, value in metrics.items() if name != "loss"},
            epoch_end=epoch_end,
            learning_rate=learning_rate,
        )
        self._reporter.emit(progress)
