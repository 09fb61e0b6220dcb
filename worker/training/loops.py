"""Which training loop a program gets."""

from __future__ import annotations

import warnings
from typing import Any

from worker.context import Loop
from worker.tf_compat.keras_3_metrics import mend_metrics
from worker.tf_compat.strategies import uses_coordinator
from worker.training.fit import fit
from worker.training.parameter_server import coordinate
from worker.training.synchronous import train_together


def train(loop: Loop) -> Any:
    """Trains to the last epoch, in the loop that the program and the strategy ask for. Returns the model."""
    # Of TensorFlow's own making, for distributed datasets. Set here because a filter with a pattern makes
    # the import of TensorFlow half a second slower.
    warnings.filterwarnings("ignore", message="To make it possible to preserve tf.data options")
    mend_metrics(loop.strategy)
    if not (loop.program.has("loss") or loop.program.has("train_step")):
        return fit(loop)
    if uses_coordinator(loop.strategy):
        return coordinate(loop)
    return train_together(loop)
