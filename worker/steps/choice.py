"""Chooses the steps of a program's model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from worker.program import LoadedProgram
from worker.steps.compiled_step import CompiledSteps
from worker.steps.fitted_step import FittedSteps
from worker.steps.step import Steps
from worker.tf_compat import keras_models


def steps_of(
    program: LoadedProgram, model: Any, global_batch_size: int, element: Any, notice: Callable[[str], None]
) -> Steps:
    """Returns the steps of `program` and `model`, constructed as `Steps` is. `notice` is called with
    sentences for the user.
    """
    arguments = (program, model, global_batch_size, element, notice)
    if program.has("loss") or program.has("train_step"):
        return Steps(*arguments)
    if keras_models.is_keras_3(model):
        return CompiledSteps(*arguments)
    if keras_models.has_own(model, "test_step", "compute_metrics"):
        return FittedSteps(*arguments)
    steps = Steps(*arguments)
    steps.build_compiled(element)
    return steps
