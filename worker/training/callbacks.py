"""The callbacks of the runtime in `Model.fit`, except for progress records."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from worker.checkpoints.model_directory import ModelDirectory
from worker.context import Loop
from worker.contract import Evaluation
from worker.failures import program_error
from worker.input.datasets import ended_early
from worker.reporting import as_floats
from worker.steps.steps_per_execution import Packing
from worker.tf_compat import keras_3, keras_models, remote_values
from worker.tf_compat.strategies import uses_coordinator
from worker.training.epoch_metrics import EpochMetrics

_EXECUTIONS_PER_MEASUREMENT = 2
"""Number for each worker under ParameterServer."""


class Boundaries(keras_models.Callback):
    """Calls the loop's `boundary`. `skipped` steps of the epoch were done before; `begun` has its metrics."""

    def __init__(self, loop: Loop, begun: EpochMetrics) -> None:
        super().__init__()
        self._loop = loop
        self._begun = begun
        self._epoch = 0
        self.skipped = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """`epoch` counts from 0."""
        self._epoch = epoch
        self._begun.begin()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Before each execution."""
        coordinator = keras_models.coordinator(self.model)
        settle = coordinator.join if coordinator is not None else None
        self._loop.hooks.boundary(
            self.model, self._epoch, self.skipped + batch, lambda: self.model.metrics, settle
        )

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """After an execution."""
        self._begun.stepped()


class WholeEpochs(keras_models.Callback):
    """Ends the training when the data ends before the epoch does: Keras only warns, and trains no more.

    Where only the end of the data ends an epoch, TensorFlow at times counts the step that finds the end. This
    callback then corrects the optimizer's iterations.
    """

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self._loop = loop
        self._done = self._before = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """`epoch` counts from 0."""
        self._done = 0
        if not self.params.get("steps"):
            self._before = int(self.model.optimizer.iterations)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Runs, under ParameterServer, when the execution is scheduled."""
        self._done = batch + 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Raises Failure where the data has ended."""
        steps = self.params.get("steps")
        if not steps:
            self.model.optimizer.iterations.assign(self._before + self._done)
        if not steps or self.model.stop_training:
            return
        if uses_coordinator(self.model.distribute_strategy):
            handler, _ = keras_models.fit_data(self.model)
            if keras_models.ran_out_of_data(handler):
                raise ended_early(self._loop, epoch + 1, 0, steps)
        elif self._done < steps:
            raise ended_early(self._loop, epoch + 1, self._done, steps)


class Packer(keras_models.Callback):
    """Finds `steps_per_execution` of a Keras 2 model during the first epoch, by `packing`.

    Under ParameterServer the executions of all workers overlap, and those of an epoch are scheduled at once.
    So, until the number is found, this callback lets some be scheduled and waits for them. `most()` is the
    upper limit of the number, and `workers()` the number of tasks that take steps: both may change between
    two epochs. `agree` returns the number of the task that decides for all.
    """

    def __init__(
        self,
        packing: Packing,
        workers: Callable[[], int],
        most: Callable[[], int | None],
        agree: Callable[[int, bool], tuple[int, bool]],
    ) -> None:
        super().__init__()
        self._packing = packing
        self._workers = workers
        self._most = most
        self._agree = agree
        self._found: int | None = None
        self._since = 0.0
        self._steps_done = 0
        self._scheduled: list[Any] = []

    def on_train_begin(self, logs: Any = None) -> None:
        """Begins with one step in an execution."""
        self._take()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Starts the clock."""
        if self._found is not None and uses_coordinator(self.model.distribute_strategy):
            keras_models.set_steps_per_execution(self.model, self._limited(self._found))
        self._steps_done = 0
        self._scheduled = []
        self._since = time.monotonic()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Runs after each execution, or when it has been scheduled."""
        if self._packing.settled:
            return
        steps, self._steps_done = batch + 1 - self._steps_done, batch + 1
        if uses_coordinator(self.model.distribute_strategy):
            self._scheduled.append(logs)
            if len(self._scheduled) < _EXECUTIONS_PER_MEASUREMENT * self._workers():
                return
            for value in self._scheduled:
                # If it failed, the next call that schedules raises the error.
                remote_values.wait(value)
            self._scheduled = []
            executions = _EXECUTIONS_PER_MEASUREMENT
        else:
            executions = 1
            as_floats(logs)  # waits for a GPU
        now = time.monotonic()
        self._packing.measured(steps, (now - self._since) / executions)
        self._take()
        self._since = time.monotonic()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Ends the search: the number is found in the first epoch."""
        if not self._packing.settled:
            self._packing.epoch_ended()
            self._take()

    def _take(self) -> None:
        packing = self._packing
        if not packing.settled and packing.number > self._limited(packing.number):
            packing.epoch_ended()
        if packing.settled and self._found is None:
            self._found = packing.number
        packing.agree(*self._agree(self._limited(packing.number), packing.settled))
        keras_models.set_steps_per_execution(self.model, packing.number)

    def _limited(self, number: int) -> int:
        most = self._most()
        return number if most is None else min(number, most)


class Checkpoints(keras_models.Callback):
    """Saves after every `checkpointEpochs` epochs, and after the last epoch of the training."""

    def __init__(self, loop: Loop, directory: ModelDirectory) -> None:
        super().__init__()
        self._loop = loop
        # Every task of a collective strategy must save, because variables may be spread; one keeps the files.
        self._directory = directory if loop.writes else ModelDirectory(tempfile.mkdtemp(prefix="scratch-"))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Saves. It is the last callback of an epoch."""
        done, parameters = epoch + 1, self._loop.parameters
        is_last = done == parameters.epochs or self.model.stop_training
        if done % parameters.checkpoint_epochs == 0 or is_last:
            self._loop.hooks.enter(f"writing checkpoint {done}")
            self._directory.save(self.model, done)
            self._loop.hooks.saved()
            self._loop.hooks.enter("training")


class Validation(keras_models.Callback):
    """Reports the results of `Model.fit` on the evaluation dataset."""

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self._loop = loop

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """`epoch` counts from 0."""
        found = as_floats(logs)
        metrics = {name[4:]: value for name, value in found.items() if name.startswith("val_")}
        if metrics and self._loop.writes:
            self._loop.hooks.reporter.emit(Evaluation(f"ckpt-{epoch + 1}", epoch + 1, metrics))


class KeptData(keras_models.Callback):
    """Keeps the training data of `Model.fit` from being deleted when it returns.

    To remove its functions from the workers, with one message each, took 9 s for 6,000 images of
    Fashion-MNIST. The workers end soon after and free everything.
    """

    def __init__(self, kept: list[object]) -> None:
        super().__init__()
        self._kept = kept

    def on_train_end(self, logs: Any = None) -> None:
        """Runs while `fit` still has the data."""
        self._kept.extend(keras_models.fit_data(self.model))


def of_program(loop: Loop, model: Any) -> list[Any]:
    """Returns the program's callbacks for a loop of the runtime's own.

    BackupAndRestore of Keras 3 is left out: two tasks cannot write its files, and the runtime goes on from
    its own checkpoints.
    """
    called = []
    for callback in loop.program.callbacks(model):
        if keras_models.is_keras_3(callback) and keras_3.restores(callback):
            if loop.writes:
                loop.hooks.reporter.notice(
                    f"{loop.program.entrypoint}: callbacks(): BackupAndRestore is left out: a run with "
                    "spec.modelDir goes on from its checkpoints by itself"
                )
            continue
        if keras_models.is_keras_3(callback) and not loop.writes:
            keras_3.save_elsewhere(callback)
        called.append(callback)
    return called


def check_hooks(callback: Any, entrypoint: str) -> None:
    """Raises Failure for a callback of the program that does not work under ParameterServer."""
    by_batch = keras_models.has_batch_hooks(callback, evaluation=True)
    # Keras' other callbacks work with RemoteValues.
    saves = isinstance(callback, (tf.keras.callbacks.ModelCheckpoint, tf.keras.callbacks.BackupAndRestore))
    if by_batch and (saves or not keras_models.takes_tensors(callback)):
        raise program_error(
            f"{entrypoint}: callbacks() has a {type(callback).__name__} with hooks for every batch, which "
            "ParameterServer cannot call: batches are scheduled ahead and run on the workers; use its hooks "
            "for every epoch (on_epoch_end, or save_freq='epoch'), or another spec.strategy"
        )
