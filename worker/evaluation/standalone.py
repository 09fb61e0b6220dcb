"""Scores a checkpoint of an earlier run: `spec.mode: Evaluate`.

All replicas of all workers take part, and each example counts once. Nothing is written to the model directory
except TensorBoard's figures in `logs/evaluation`.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from worker.checkpoints.model_directory import ModelDirectory
from worker.cluster.executions import Executions
from worker.cluster.kv_store import by_first_task
from worker.context import Loop
from worker.contract import Evaluation
from worker.evaluation import inline, trained_model
from worker.failures import program_error, writing
from worker.input import datasets, replica_shares
from worker.input.distribution import Once
from worker.models import model_build
from worker.program import LoadedProgram
from worker.progress import curves
from worker.reporting import as_floats
from worker.steps.choice import steps_of
from worker.steps.iteration import Iteration
from worker.steps.replica_model import check_xla, replica_model
from worker.steps.step import Steps
from worker.tf_compat import keras_models
from worker.tf_compat.strategies import uses_coordinator

_STEPS = 32
"""Steps in one execution."""


def check_program(program: LoadedProgram) -> None:
    """Raises Failure where the program has no evaluation dataset."""
    if not program.has("evaluation_dataset"):
        raise program_error(
            f"{program.entrypoint} has no method evaluation_dataset(batch_size), which mode: Evaluate needs"
        )


def evaluate(loop: Loop, directory: ModelDirectory, checkpoint: str | None) -> object:
    """Reports loss and metrics of `checkpoint`, the newest for None. Returns objects that must outlive the
    tasks.
    """
    program, strategy = loop.program, loop.strategy
    # A training that still runs may write another checkpoint while the tasks choose.
    epoch, _ = by_first_task(strategy, loop.writes)(trained_model.choose(directory, checkpoint), True)
    # The model comes first: lookup tables that a dataset uses are made in it.
    model = replica_model(loop)
    with strategy.scope():
        dataset, batches = datasets.evaluation_dataset(loop)
        model_build.build(model, dataset.element_spec, program.entrypoint)
        trained_model.load(loop, directory, model, epoch)
    loop.hooks.enter(f"evaluating ckpt-{epoch}")
    if uses_coordinator(strategy):
        metrics = _by_workers(loop, model, dataset)
    elif program.has("loss") or program.has("train_step") or keras_models.is_keras_3(model):
        metrics = _by_replicas(loop, model, dataset, batches)
    else:
        metrics = _by_keras(loop, model, dataset, batches)
    by_model = not program.has("train_step") and keras_models.measures_loss(model)
    if not (program.has("loss") or model.loss or by_model):
        metrics.pop("loss", None)  # the model was compiled without a loss, so the value has no meaning
    if loop.writes:
        _write_summary(directory, epoch, metrics)
        loop.hooks.reporter.emit(Evaluation(f"ckpt-{epoch}", epoch, metrics))
    return model


def _by_keras(loop: Loop, model: Any, dataset: Any, batches: int) -> dict[str, float]:
    """Scores as `Model.fit` of Keras 2 does."""
    check_xla(loop, model)
    fill = int(replica_shares.has_keras_steps(model))
    with loop.strategy.scope():
        distributed = datasets.distributed_evaluation(loop, dataset, with_shares=True, fill=fill)
    if distributed.has_shares:
        replica_shares.use_shares(model, distributed, distributed)
    replica_shares.return_results_once(model, loop.strategy)
    given = Once(distributed.elements)
    loop.hooks.kept.append(given)
    callbacks = [_Alive(loop)]
    return as_floats(model.evaluate(given, steps=batches, verbose=0, return_dict=True, callbacks=callbacks))


def _by_replicas(loop: Loop, model: Any, dataset: Any, batches: int) -> dict[str, float]:
    with loop.strategy.scope():
        steps = _steps(loop, model, dataset)
        distributed = datasets.distributed_evaluation(loop, dataset, with_shares=True, fill=1)

    def step(batch: Any, share: Any) -> Any:
        steps.evaluate(batch, share)
        return tf.constant(0.0)

    iteration = Iteration(loop.strategy, step, distributed, endless=True, eagerly=bool(model.run_eagerly))
    loop.hooks.kept.append(iteration)
    left = batches
    while left:
        _, ran = iteration.run(min(_STEPS, left))
        left -= ran
        loop.hooks.alive()
    return steps.results()


def _by_workers(loop: Loop, model: Any, dataset: Any) -> dict[str, float]:
    coordinator = tf.distribute.coordinator.ClusterCoordinator(loop.strategy)
    executions = Executions(coordinator, loop.count_workers, lambda _: loop.hooks.alive(), loop.hooks.failed)
    with loop.strategy.scope():
        steps = _steps(loop, model, dataset)
    evaluation = inline.evaluation(loop, coordinator, executions, steps)
    loop.hooks.kept.append(evaluation)
    return evaluation.run() if evaluation is not None else {}


def _steps(loop: Loop, model: Any, dataset: Any) -> Steps:
    size, element = loop.parameters.global_batch_size, dataset.element_spec
    steps = steps_of(loop.program, model, size, element, loop.hooks.reporter.notice)
    if loop.program.has("train_step") and not (loop.program.has("loss") or keras_models.is_keras_3(model)):
        steps.build_compiled(element)
    return steps


class _Alive(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Gives a sign of life during the evaluation."""

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self._supports_tf_logs = True
        self._loop = loop

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Runs after each execution."""
        self._loop.hooks.alive()


def _write_summary(directory: ModelDirectory, epoch: int, metrics: dict[str, float]) -> None:
    """Writes the figures where the evaluator writes them, with its names and steps."""
    folder = directory.files.logs("logs/evaluation")
    with writing(folder), tf.summary.create_file_writer(folder).as_default():
        curves.write(metrics, epoch)
