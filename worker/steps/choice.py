"""Chooses the steps of a program's model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from worker.program import LoadedProgram
from worker.steps.compiled_step import CompiledSteps
from worker.steps.step import Steps


def steps_of(
    program: LoadedProgram, model: Any, global_batch_size: int, element: Any, notice: Callable[[str], None]
) -> Steps:
    """Returns the steps of `program` and `model`, constructed as `Steps` is. `notice` is called with
    sentences for the user.
    """
    arguments = (program, model, global_batch_size, element, notice)
    if program.has("loss") or program.has("train_step"):
        return Steps(*arguments)
    return CompiledSteps(*arguments)
