"""Scores a checkpoint of an earlier run: `spec.mode: Evaluate`.

All replicas of all workers take part, and each example counts once. Nothing is written to the model directory
except TensorBoard's figures in `logs/evaluation`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from worker.checkpoints.model_directory import ModelDirectory
from worker.collective.kv_store import by_first_task
from worker.context import Loop
from worker.contract.records import Evaluation
from worker.evaluation import scoring, trained_model
from worker.failures import program_error, writing
from worker.program import LoadedProgram
from worker.progress import curves
from worker.reporting import as_floats
from worker.steps.replica_model import replica_model
from worker.tf_compat import keras_models


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
    # A training that still runs may write another checkpoint while the tasks choose.
    epoch, _ = by_first_task(loop.strategy, loop.writes)(trained_model.choose(directory, checkpoint), True)
    # The model comes first: lookup tables that a dataset uses are made in it.
    model = replica_model(loop)
    metrics = score(loop, model, lambda: trained_model.load(loop, directory, model, epoch))
    if loop.writes:
        metrics = as_floats(metrics)
        _write_summary(directory, epoch, metrics)
        loop.hooks.reporter.emit(Evaluation(f"ckpt-{epoch}", epoch, metrics))
    return model


def score(
    loop: Loop, model: Any, load: Callable[[], None] = lambda: None, callbacks: Sequence[Any] = ()
) -> dict[str, float]:
    """Returns loss and metrics of `model` on the program's evaluation dataset. `load` gives it its values,
    once it has all variables. `callbacks` have their hooks for evaluations called.
    """
    scorer = scoring.of_model(loop, model)
    loop.hooks.kept.append(scorer)
    with loop.strategy.scope():
        load()
    loop.hooks.enter("evaluating")
    return scoring.called(scorer, keras_models.callback_list(model, callbacks))


def _write_summary(directory: ModelDirectory, epoch: int, metrics: dict[str, float]) -> None:
    """Writes the figures where the evaluator writes them, with its names and steps."""
    folder = directory.files.logs("logs/evaluation")
    with writing(folder), tf.summary.create_file_writer(folder).as_default():
        curves.write(metrics, epoch)
