"""The callbacks of a training: the program's own, and those of the runtime."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from worker.checkpoints.model_directory import ModelDirectory
from worker.context import Loop
from worker.contract.records import Evaluation
from worker.failures import classify
from worker.program import LoadedProgram
from worker.progress import curves
from worker.reporting import as_floats
from worker.tf_compat import keras_3, keras_models
from worker.tf_compat.strategies import uses_coordinator, worker_count


def of_program(loop: Loop, model: Any) -> list[Any]:
    """Returns the program's callbacks.

    BackupAndRestore is left out, since the runtime goes on from its own checkpoints: it would put back
    weights of another epoch than the runtime's, and two tasks cannot write the files of Keras 3's.
    """
    called = []
    for callback in loop.program.callbacks(model):
        if isinstance(callback, keras_models.keras_of(model).callbacks.BackupAndRestore):
            loop.notice(
                f"{_given(callback, loop.program)}, which is left out: a run with spec.modelDir "
                "goes on from its checkpoints by itself"
            )
            continue
        own_folder = loop.program.is_of_one_process  # in which a script may load what it has saved
        if keras_models.is_keras_3(callback) and not loop.writes and not own_folder:
            keras_3.save_elsewhere(callback)
        called.append(callback)
    return called


def saving(loop: Loop, model: Any, directory: ModelDirectory) -> list[Any]:
    """Returns the runtime's callbacks in their order: the checkpoint is written last in an epoch."""
    logs = directory.files.logs("logs") if loop.writes else tempfile.mkdtemp(prefix="logs-")
    board = []
    if curves.can_be_written():
        board = [keras_models.keras_of(model).callbacks.TensorBoard(logs, write_graph=False, profile_batch=0)]
        _go_on_without_curves(board[0], loop)
    else:
        loop.notice(curves.MISSING)
    return [*board, Validation(loop), Checkpoints(loop)]


def _go_on_without_curves(board: Any, loop: Loop) -> None:
    """Has the training go on where `board` cannot write, as on a full disk: it tries again in the next
    epoch. It does not get results that are no curve, such as a number for each class.
    """
    was_missed = False

    def forgiving(hook: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(hook)
        def called(*arguments: Any, **options: Any) -> None:
            nonlocal was_missed
            given = [as_floats(each) if isinstance(each, Mapping) else each for each in arguments]
            try:
                hook(*given, **options)
            except (tf.errors.OpError, OSError) as error:
                if not was_missed:
                    was_missed = True
                    reason = classify(error, "writing them").message
                    loop.notice(f"curves of TensorBoard are missing: {reason}")

        return called

    for name in ("on_train_begin", "on_train_end", "on_test_begin", "on_test_end", "on_epoch_end"):
        setattr(board, name, forgiving(getattr(board, name)))


def saves_by_step(callback: Any) -> bool:
    """Returns whether `callback` is Keras' ModelCheckpoint that saves after every `save_freq` steps."""
    kind = keras_models.keras_of(callback).callbacks.ModelCheckpoint
    return type(callback) is kind and callback.save_freq != "epoch"


def with_batch_hooks(loop: Loop, called: Iterable[Any]) -> list[Any]:
    """Returns those of `called` that have hooks for every batch. For Keras' ModelCheckpoint the workers of a
    coordinator stop where it saves, and not after every step.
    """
    coordinated = uses_coordinator(loop.strategy)
    return [
        callback
        for callback in called
        if keras_models.has_batch_hooks(callback) and not (coordinated and saves_by_step(callback))
    ]


def tell_of_single_steps(callback: Any, loop: Loop) -> None:
    """Tells what it costs under ParameterServer that `callback` has hooks for every batch."""
    loop.notice(
        f"{_given(callback, loop.program)} with hooks for every batch: each step waits for the one before, "
        "so that one worker computes at a time. Hooks for every epoch (on_epoch_end) would not cost that"
    )


def _given(callback: Any, program: LoadedProgram) -> str:
    kind = type(callback).__name__
    given = f"fit() was given a {kind}" if program.is_of_one_process else f"callbacks() has a {kind}"
    return f"{program.entrypoint}: {given}"


class StopTogether(keras_models.Callback):
    """Has the tasks of a collective stop when a callback of one of them has said so, as it may by its own
    clock: a step ends with all tasks only. It stands behind the program's callbacks.
    """

    def __init__(self, strategy: Any) -> None:
        super().__init__()
        self._has_several = worker_count(strategy) > 1

        def total(flag: tf.Tensor) -> Any:
            def added() -> Any:  # the copy has a device, which TensorFlow asks for
                return tf.distribute.get_replica_context().all_reduce(
                    tf.distribute.ReduceOp.SUM, tf.identity(flag)
                )

            return strategy.experimental_local_results(strategy.run(added))[0]

        self._total = tf.function(total)

    def agree(self) -> None:
        """Must be called by all tasks, after hooks that may have stopped the training."""
        if self._has_several:
            stops = tf.constant(float(bool(self.model.stop_training)))
            self.model.stop_training = bool(self._total(stops) > 0)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Agrees."""
        self.agree()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Agrees."""
        self.agree()


class Checkpoints(keras_models.Callback):
    """Has the epochs saved: the last callback of an epoch, and of the training, whose end may have put back
    the best weights.
    """

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self._loop = loop
        self._last: tuple[int, dict[str, float]] | None = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """`epoch` counts from 0."""
        done = epoch + 1
        if done == self._loop.parameters.epochs or bool(self.model.stop_training):
            self._last = done, as_floats(logs)
        else:
            self._save(done, as_floats(logs), is_last=False)

    def on_train_end(self, logs: Any = None) -> None:
        """Has what the training leaves saved, unless an earlier attempt has done its last epoch."""
        if self._last is not None:
            self._save(*self._last, is_last=True)

    def _save(self, done: int, metrics: dict[str, float], *, is_last: bool) -> None:
        self._loop.hooks.enter(f"writing checkpoint {done}")
        self._loop.hooks.epoch_ended(self.model, done, metrics, is_last)
        self._loop.hooks.enter("training")


class Validation(keras_models.Callback):
    """Reports the results on the evaluation dataset."""

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self._loop = loop

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """`epoch` counts from 0."""
        epoch_logs = as_floats(logs)
        metrics = {name[4:]: value for name, value in epoch_logs.items() if name.startswith("val_")}
        if metrics and self._loop.writes:
            self._loop.hooks.reporter.emit(Evaluation(f"ckpt-{epoch + 1}", epoch + 1, metrics))
