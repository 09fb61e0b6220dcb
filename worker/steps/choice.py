"""Chooses the steps of a program's model."""

from __future__ import annotations

from typing import Any

from worker.context import Loop
from worker.steps.compiled_step import CompiledSteps
from worker.steps.step import Steps


def steps_of(loop: Loop, model: Any, element: Any) -> Steps:
    """Returns the steps of the program of `loop` and its `model`, for data of the spec `element`. Call it
    where `Steps` may be constructed.
    """
    program = loop.program
    kind = Steps if program.has("loss") or program.has("train_step") else CompiledSteps
    return kind(program, model, loop.parameters.global_batch_size, element, loop.notice)
