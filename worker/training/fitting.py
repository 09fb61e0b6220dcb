"""What a script's calls need of the task that trains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from worker.checkpoints.model_directory import ModelDirectory
from worker.context import Loop
from worker.parameters import TrainingParameters


@dataclass(frozen=True)
class FitCall:
    """Which call of `fit` in a script trains: its `number`, from 1, and up to which of its epochs an earlier
    attempt has left a record, -1 where there was none.
    """

    number: int
    recorded_epochs: int


@dataclass(frozen=True)
class Fitting:
    """A task that is connected to the others, and trains what it is given.

    `directory` is None without a modelDir; `writes` is false where another task writes it. `place(name)` is a
    folder of it with checkpoints of their own, "" for itself. `fit(program, parameters, directory, call,
    ended)` trains to the last epoch; `ended` is called when the last checkpoint is written, with whether the
    last epoch is whole, or was stopped by a callback in its middle. `loop(program, parameters)` gives the
    values for an evaluation or a prediction. `idle` is called when the script itself goes on, which may take
    any time. `notice` tells the user, once for all tasks.
    """

    strategy: tf.distribute.Strategy
    directory: ModelDirectory | None
    writes: bool
    parameters: TrainingParameters
    place: Callable[[str], ModelDirectory | None]
    fit: Callable[[Any, TrainingParameters, ModelDirectory | None, FitCall, Callable[[bool], None]], None]
    loop: Callable[[Any, TrainingParameters], Loop]
    idle: Callable[[], None]
    notice: Callable[[str], None]
