"""Training by `Model.fit`, the same for every strategy."""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from worker.checkpoints import ModelDirectory
from worker.contract import Event
from worker.datasets import check_for_python, steps_per_epoch
from worker.failures import program_error
from worker.loops import Loop
from worker.progress import Progress
from worker.reporting import as_floats

_PACKED_STEPS = 10
_EXECUTIONS_PER_WORKER = 10


def fit(loop: Loop) -> Any:
    """Trains to the last epoch, from the newest checkpoint where there is one. Returns the model."""
    # Of TensorFlow's own making, for every dataset of a ParameterServer run. Set here because a filter with
    # a pattern makes the import of TensorFlow half a second slower.
    warnings.filterwarnings("ignore", message="To make it possible to preserve tf.data options")
    parameters, strategy = loop.parameters, loop.strategy
    with strategy.scope():
        loop.enter("running train_dataset()")
        dataset = loop.program.train_dataset(parameters.global_batch_size)
        steps = steps_per_epoch(loop, dataset)
        if strategy._should_use_with_coordinator:
            check_for_python(loop.program, dataset)
        if steps is not None and dataset.cardinality() != tf.data.INFINITE_CARDINALITY:
            dataset = dataset.repeat()
        dataset = dataset.prefetch(tf.data.AUTOTUNE)
        loop.enter("running model()")
        model = loop.program.model()
        _build(model, dataset, loop.program.entrypoint)
        _pack_steps(model, loop, steps)
        loop.enter("reading the checkpoint")
        done = loop.directory.resume(model, loop.reporter.notice) if loop.directory else 0
    loop.enter("running callbacks()")
    callbacks = [
        Progress(
            loop.reporter if loop.writes else None, loop.alive, loop.stepped, loop.failed, parameters.epochs
        ),
        *loop.program.callbacks(),
        _KeptData(loop.kept),
    ]
    if loop.directory is not None:
        callbacks += _saving(loop, loop.directory)
    done = min(done, parameters.epochs)
    if loop.writes:
        loop.reporter.emit(
            Event.TRAINING, epochs=parameters.epochs, steps_per_epoch=steps, initial_epoch=done
        )
    loop.enter("training")
    if done < parameters.epochs:
        model.fit(
            dataset,
            epochs=parameters.epochs,
            initial_epoch=done,
            steps_per_epoch=steps,
            callbacks=callbacks,
            validation_data=_validation_data(loop),
            verbose=0,
        )
    return model


def _build(model: Any, dataset: Any, entrypoint: str) -> None:
    """Makes all variables, the optimizer's too: later ones would be restored by whichever task makes them."""
    if not model.built:
        features = dataset.element_spec
        features = features[0] if isinstance(features, tuple) else features
        try:
            model.build(tf.nest.map_structure(lambda spec: spec.shape, features))
        except ValueError as error:
            raise program_error(
                f"{entrypoint}: the variables of model() depend on data: give its first layer an input "
                "shape, or call it once on a batch before returning it"
            ) from error
    optimizer = model.optimizer
    if hasattr(optimizer, "build"):
        optimizer.build(model.trainable_variables)
    elif hasattr(optimizer, "_create_all_weights"):  # tf.keras.optimizers.legacy
        optimizer._create_all_weights(model.trainable_variables)


def _pack_steps(model: Any, loop: Loop, steps: int | None) -> None:
    """Sets how many steps go into one execution.

    Under ParameterServer each execution costs the chief a message: 10 steps in one double the speed of a
    small model. But every worker should have several executions an epoch, or one would wait for another.
    """
    packed = loop.parameters.steps_per_execution
    compiled = int(model._steps_per_execution.numpy())
    if packed is None and compiled == 1 and steps and loop.strategy._should_use_with_coordinator:
        packed = max(1, min(_PACKED_STEPS, steps // (_EXECUTIONS_PER_WORKER * max(1, loop.workers))))
    if packed is not None and packed != compiled:
        model._configure_steps_per_execution(packed)


def _validation_data(loop: Loop) -> Any:
    if not (loop.validates and loop.program.has("evaluation_dataset")):
        return None
    loop.enter("running evaluation_dataset()")
    dataset = loop.program.evaluation_dataset(loop.parameters.global_batch_size)
    loop.enter("training")
    return dataset


def _saving(loop: Loop, directory: ModelDirectory) -> list[Any]:
    """Callbacks, in their order: the checkpoint is the last thing of an epoch."""
    logs = directory.path("logs") if loop.writes else tempfile.mkdtemp(prefix="logs-")
    return [
        tf.keras.callbacks.TensorBoard(logs, write_graph=False, profile_batch=0),
        tf.keras.callbacks.LambdaCallback(on_epoch_end=_report_validation(loop)),
        _Checkpoints(loop, directory),
    ]


def _report_validation(loop: Loop) -> Callable[[int, Any], None]:
    def report(epoch: int, logs: Any) -> None:
        metrics = {
            name.removeprefix("val_"): value
            for name, value in as_floats(logs).items()
            if name.startswith("val_")
        }
        if metrics and loop.writes:
            loop.reporter.emit(
                Event.EVALUATION, checkpoint=f"ckpt-{epoch + 1}", epoch=epoch + 1, metrics=metrics
            )

    return report


class _KeptData(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps the training data of `Model.fit` from being collected when it returns.

    Removing its functions from the workers, one message each, took 9 s for 6,000 images of Fashion-MNIST.
    The workers end soon after and free it all.
    """

    def __init__(self, kept: list[object]) -> None:
        super().__init__()
        self._supports_tf_logs = True
        self._kept = kept

    def on_train_end(self, logs: Any = None) -> None:
        frame = sys._getframe()
        while frame.f_back is not None:
            frame = frame.f_back
            if "data_handler" in frame.f_locals:
                self._kept.extend(frame.f_locals.get(name) for name in ("data_handler", "iterator"))
                return


class _Checkpoints(tf.keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self, loop: Loop, directory: ModelDirectory) -> None:
        super().__init__()
        self._supports_tf_logs = True
        self._loop = loop
        # Every task of a collective strategy must save, because variables may be spread; one keeps it.
        self._directory = directory if loop.writes else ModelDirectory(tempfile.mkdtemp(prefix="scratch-"))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._loop.enter(f"writing checkpoint {epoch + 1}")
        self._directory.save(self.model, epoch + 1)
        self._loop.enter("training")
