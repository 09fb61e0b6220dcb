"""Training by `Model.fit`, for every strategy."""

from __future__ import annotations

import tempfile
from typing import Any

import tensorflow as tf

from worker.checkpoints.model_directory import ModelDirectory, Position
from worker.cluster.kv_store import by_first_task
from worker.context import Loop
from worker.contract import Training
from worker.failures import Failure, program_error
from worker.input import continuation, datasets, replica_shares
from worker.models import model_build
from worker.progress import curves
from worker.progress.callback import Progress
from worker.steps.replica_model import check_xla
from worker.steps.steps_per_execution import Packing
from worker.tf_compat import keras_2_optimizers, keras_models
from worker.tf_compat.strategies import uses_coordinator
from worker.training import advice, callbacks, fit_datasets
from worker.training.epoch_metrics import EpochMetrics

_EXECUTIONS_PER_WORKER = 10


def fit(loop: Loop, model: Any) -> Any:
    """Trains the program's Keras 2 `model` to the last epoch, from the newest checkpoint if there is one.
    Returns the model.
    """
    parameters, strategy = loop.parameters, loop.strategy
    check_xla(loop, model)
    with strategy.scope():
        dataset, steps = datasets.training_dataset(loop)
        build(model, dataset, loop)
        _keep_metrics_apart(model, strategy)
        loop.hooks.enter("reading the checkpoint")
        position = loop.directory.resume(model, loop.hooks.reporter.notice) if loop.directory else Position()
    loop.hooks.enter("running callbacks()")
    own = loop.program.callbacks(model)
    if uses_coordinator(strategy):
        # The hook of TerminateOnNaN cannot read what a worker has not computed yet.
        own = [each for each in own if not isinstance(each, tf.keras.callbacks.TerminateOnNaN)]
        for callback in own:
            callbacks.check_hooks(callback, loop.program.entrypoint)
    position = position.within(parameters.epochs, steps)
    begun = EpochMetrics(strategy, loop.directory, position, lambda: model.metrics)
    boundaries = callbacks.Boundaries(loop, begun)
    hooks = loop.hooks
    reporter = hooks.reporter if loop.writes else None
    progress = Progress(reporter, hooks.alive, hooks.stepped, hooks.failed, parameters.epochs)
    called = [progress, boundaries, *_packing(model, loop, steps, own), *own, callbacks.WholeEpochs(loop)]
    if uses_coordinator(strategy):
        called.append(callbacks.KeptData(loop.hooks.kept))
    if loop.directory is not None:
        called += saving(loop, model, loop.directory)
    dataset = continuation.continued(loop, dataset, steps, position)
    if not replica_shares.has_keras_steps(model):
        continuation.check_parts(loop)
    data = fit_datasets.prepare(loop, model, dataset, steps, own)
    replica_shares.return_results_once(model, strategy)
    done = position.epochs
    if loop.writes:
        loop.hooks.reporter.emit(Training(parameters.epochs, steps, initial_epoch=done))
    loop.hooks.enter("training")

    def train(epochs: int, steps_per_epoch: int | None) -> None:
        with datasets.reading(loop):
            model.fit(
                data.training(),
                epochs=epochs,
                initial_epoch=done,
                steps_per_epoch=steps_per_epoch,
                callbacks=[*called[:1], *data.callbacks, *called[1:]],
                validation_data=data.validation,
                validation_steps=data.validation_steps,
                verbose=0,
            )

    if position.steps and steps:
        # The first epoch is the rest of one in whose middle SIGTERM ended an earlier attempt.
        progress.skipped = boundaries.skipped = position.steps
        train(done + 1, steps - position.steps)
        progress.skipped = boundaries.skipped = 0
        done += 1
    if done < parameters.epochs and not getattr(model, "stop_training", False):
        train(parameters.epochs, steps)
    return model


def build(model: Any, dataset: Any, loop: Loop) -> None:
    """Makes all variables, the optimizer's too: variables made later would be restored by whichever task
    makes them.
    """
    loop.hooks.enter("building the model")
    element = dataset.element_spec
    features = element[0] if isinstance(element, tuple) else element
    _check_batches(model, features, loop)
    model_build.build(model, element, loop.program.entrypoint)
    _check_batch_dimension(model, features, loop)
    optimizer = model.optimizer
    keras_models.build_optimizer(optimizer, model.trainable_variables)
    of_model = [each for each in keras_models.optimizers_of(model).values() if each is not optimizer]
    of_program = {
        name: each
        for name, each in loop.program.optimizers().items()
        if not any(each is other for other in (optimizer, *of_model))
    }
    if uses_coordinator(loop.strategy) and not keras_models.is_keras_3(model):
        for each in (optimizer, *of_model, *of_program.values()):
            keras_2_optimizers.mend(each)
    if of_program and loop.directory is not None and loop.writes:
        loop.hooks.reporter.notice(
            f"{loop.program.entrypoint}: checkpoints do not have the state of the optimizers that the "
            f"program keeps ({', '.join(of_program)}): make each an attribute of the model"
        )
    advice.advise(loop, model, dataset)


def _check_batches(model: Any, features: Any, loop: Loop) -> None:
    """Raises Failure where the dataset gives single examples to a model that knows its inputs."""
    for spec, tensor in zip(tf.nest.flatten(features), tf.nest.flatten(getattr(model, "inputs", None))):
        shape = getattr(tensor, "shape", None)
        if shape is None or not isinstance(spec, tf.TensorSpec) or spec.shape.rank is None:
            continue
        if list(shape)[1:] == list(spec.shape) and None not in spec.shape:
            raise program_error(
                f"{loop.program.entrypoint}: train_dataset() gives {list(spec.shape)}, a single example, and "
                f"model() takes batches of them, {list(shape)}: end the dataset with .batch(batch_size)"
            )


def _check_batch_dimension(model: Any, features: Any, loop: Loop) -> None:
    """Raises Failure where the model was made for single examples, or for batches of another size."""
    given, wanted = tf.nest.flatten(features), tf.nest.flatten(getattr(model, "inputs", None))
    share = loop.parameters.global_batch_size // loop.strategy.num_replicas_in_sync
    for spec, tensor in zip(given, wanted):
        shape = getattr(tensor, "shape", None)
        if shape is None or not isinstance(spec, tf.TensorSpec) or spec.shape.rank is None:
            continue
        shape, data = list(shape), list(spec.shape)
        if len(shape) == len(data) - 1 and shape == data[1:]:
            raise _no_batch(loop, f"takes {shape}, a single example, and train_dataset() gives {data}")
        if len(shape) == len(data) and shape[0] not in (None, share):
            raise _no_batch(
                loop, f"takes batches of {shape[0]} only, and each replica gets {share} examples in a step"
            )
    for tensor in tf.nest.flatten(getattr(model, "outputs", None)):
        shape = getattr(tensor, "shape", None)
        if shape is not None and len(shape) == 0:
            raise _no_batch(loop, "returns a scalar for a batch, not a prediction for each of its examples")


def _no_batch(loop: Loop, what: str) -> Failure:
    return program_error(
        f"{loop.program.entrypoint}: model() has no batch dimension: it {what}; leave it open, as "
        "tf.keras.Input(shape) without a batch_size does"
    )


def _keep_metrics_apart(model: Any, strategy: Any) -> None:
    """Has Keras 2 report this task's metrics while an epoch runs, and not their sum over all tasks.

    Its "auto" adds them up under MultiWorkerMirrored: an accuracy of 0.9 on each of three workers becomes
    2.7, and each sum costs an all-reduce. At the end of an epoch the correct values are read.
    """
    is_collective = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    if is_collective and replica_shares.has_keras_steps(model):
        model.distribute_reduction_method = "first"


def _packing(model: Any, loop: Loop, steps: int | None, own: list[Any]) -> list[Any]:
    """Sets the number of steps in an execution. Returns the callback that finds it during training, where it
    is "auto".

    An execution costs a message under ParameterServer, and Keras' own overhead under every strategy. A
    callback with hooks for every batch would be called less often, so with one the number stays 1.
    """
    given = loop.parameters.steps_per_execution
    # The program's own step cannot leave filler examples out, so its batches get none.
    is_own = not replica_shares.has_keras_steps(model)
    if datasets.wants_single_steps(loop, model, loop.program.element) or (
        is_own and datasets.wants_equal_shapes(loop, model, loop.program.element)
    ):
        given = 1
    compiled = keras_models.steps_per_execution(model)
    found = given is None and compiled == 1 and steps is not None

    def most() -> int | None:
        if steps is None or not uses_coordinator(loop.strategy):
            return steps
        # Every worker needs several executions in an epoch, or it would wait for another.
        return max(1, steps // (_EXECUTIONS_PER_WORKER * loop.workers))

    if most() == 1 or any(keras_models.has_batch_hooks(callback) for callback in own):
        found = False
    keras_models.configure_steps_per_execution(model, given or compiled)
    if not found:
        return []
    keras_models.leave_steps_per_execution_to_us(model)
    agree = by_first_task(loop.strategy, loop.writes)
    return [callbacks.Packer(Packing(), loop.count_workers, most, agree)]


def saving(loop: Loop, model: Any, directory: ModelDirectory) -> list[Any]:
    """Returns callbacks in their order: the checkpoint is written last in an epoch."""
    logs = directory.files.logs("logs") if loop.writes else tempfile.mkdtemp(prefix="logs-")
    board = []
    if curves.can_be_written():
        board = [keras_models.keras_of(model).callbacks.TensorBoard(logs, write_graph=False, profile_batch=0)]
    elif loop.writes:
        loop.hooks.reporter.notice(curves.MISSING)
    return [
        *board,
        callbacks.Validation(loop),
        callbacks.Checkpoints(loop, directory),
    ]
