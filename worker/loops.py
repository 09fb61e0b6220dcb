"""What a training loop works with, and which loop a program gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

from worker.checkpoints import ModelDirectory
from worker.parameters import TrainingParameters
from worker.program import LoadedProgram
from worker.reporting import Reporter


@dataclass(frozen=True)
class Loop:
    """What a training loop works with.

    `directory` is None without a modelDir, `writes` is false for a task that only takes part in another's
    checkpoints. `workers` counts the tasks that take steps.
    `enter` is told what is being done from now on, `alive` of every sign of life, `stepped` of the first
    step, `failed` of a step's error before it is raised. What is put into `kept` lives as long as the
    process.
    """

    program: LoadedProgram
    parameters: TrainingParameters
    strategy: tf.distribute.Strategy
    directory: ModelDirectory | None
    writes: bool
    workers: int
    validates: bool
    reporter: Reporter
    enter: Callable[[str], None]
    alive: Callable[[], None]
    stepped: Callable[[], None]
    failed: Callable[[BaseException], None]
    kept: list[object]
