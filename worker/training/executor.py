"""What an executor takes the steps of an epoch with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from worker.checkpoints.position import Position
from worker.context import Loop
from worker.evaluation.scoring import Scorer
from worker.progress.records import Records
from worker.steps.step import Steps
from worker.tf_compat import keras_models
from worker.training.epoch_metrics import EpochMetrics


@dataclass(frozen=True)
class Work:
    """A training at its beginning.

    An epoch has `epoch_steps` steps. The data begins at `position`, and `begun` has the metrics of its epoch
    up to there. `callbacks` is Keras' CallbackList; with `by_batch` some of them have hooks for every batch,
    after which all tasks call `agree_to_stop`.
    """

    loop: Loop
    model: Any
    steps: Steps
    epoch_steps: int
    position: Position
    records: Records
    begun: EpochMetrics
    callbacks: Any
    by_batch: bool
    agree_to_stop: Callable[[], None]

    def check(self, done: int, metrics: Mapping[str, float]) -> None:
        """Checks the loss after `done` steps of the epoch: see `Records.check`. TerminateOnNaN sees it, too,
        whose hook for batches need not be called for each.
        """
        self.records.check(metrics)
        for callback in filter(keras_models.terminates_on_nan, self.callbacks.callbacks):
            callback.on_batch_end(done - 1, metrics)

    def boundary(self, epoch: int, step: int, settle: Callable[[], object] | None = None) -> None:
        """Must be called before each execution, when `epoch` epochs and `step` steps of the next are done, or
        have been scheduled: then `settle` waits for them.
        """
        hooks = self.loop.hooks
        hooks.taken(epoch * self.epoch_steps + step, settle)
        hooks.boundary(self.model, epoch, step, self.steps.metrics, settle)


class Executor(Protocol):
    """Takes the steps. It is constructed with a `Work` and the program's training dataset."""

    @property
    def scorer(self) -> Scorer | None:
        """Returns what scores the model between two epochs; None where nothing is to be scored."""

    def train(self, epoch: int, done: int) -> int:
        """Takes the rest of the steps of `epoch`, from 0, of which `done` are done. Returns how many are done
        then.
        """
