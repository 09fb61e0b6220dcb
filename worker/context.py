"""What a training, an evaluation or a prediction works with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from worker.checkpoints.model_directory import ModelDirectory
from worker.parameters import TrainingParameters
from worker.program import LoadedProgram
from worker.reporting import Reporter


@dataclass(frozen=True)
class Loop:
    """What a training loop works with.

    `directory` is None without a modelDir, `writes` is false for a task that only takes part in another's
    checkpoints. `workers` counts the tasks that take steps, `strategy_options` and `evaluation` are the
    spec's. `address` is this task's own, None where it has none. `validates` is false where there is an
    evaluator.
    `enter` is told what is being done from now on, `alive` of every sign of life, `stepped` of the first
    step, `failed` of a step's error before it is raised. What is put into `kept` lives as long as the
    process. `boundary(model, epoch, step, settle)` is to be called before each execution, and may not return:
    see `preemption.Preemption.boundary`.
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
    boundary: Callable[..., None]
    strategy_options: Mapping[str, Any] = field(default_factory=dict)
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    address: str | None = None
