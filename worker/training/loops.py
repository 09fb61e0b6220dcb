"""Chooses the training loop of a program."""

from __future__ import annotations

from typing import Any

from worker.context import Loop
from worker.failures import program_error
from worker.input import datasets
from worker.steps.replica_model import replica_model
from worker.tf_compat import keras_3, versions
from worker.tf_compat.keras_models import is_keras_3
from worker.tf_compat.strategies import uses_coordinator
from worker.training.fit import fit
from worker.training.parameter_server import coordinate
from worker.training.synchronous import train_together


def train(loop: Loop) -> Any:
    """Trains to the last epoch, in the loop for the program and the strategy. Returns the model."""
    datasets.check_batch_size(loop)
    # The model precedes the datasets: lookup tables that they use are made in it.
    model = replica_model(loop)
    if is_keras_3(model):
        _check_keras_3(loop, model)
    elif not (loop.program.has("loss") or loop.program.has("train_step")):
        return fit(loop, model)
    if uses_coordinator(loop.strategy):
        return coordinate(loop, model)
    return train_together(loop, model)


def _check_keras_3(loop: Loop, model: Any) -> None:
    """Raises Failure for what Keras 3 cannot train under the strategy."""
    untested = versions.keras_untested(keras_3.version())
    if untested is not None and loop.writes:
        loop.hooks.reporter.notice(untested)
    entrypoint, name = loop.program.entrypoint, loop.strategy_options.get("partitioner")
    if name is not None:
        raise program_error(
            f"spec.strategyOptions.partitioner: {entrypoint}: a model of Keras 3 cannot have its variables "
            "partitioned; leave the partitioner out, or make the model with tf_keras"
        )
    unsupported = keras_3.unsupported(model, loop.strategy)
    if unsupported is not None:
        raise program_error(
            f"{entrypoint}: Keras 3 cannot do what {unsupported} asks for under this strategy, with its "
            "several replicas or workers; leave it out, or use another spec.strategy"
        )
