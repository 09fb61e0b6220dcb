"""The parameters that the runtime itself reads from `spec.program.parameters`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from worker.failures import Failure, program_error


@dataclass(frozen=True)
class TrainingParameters:
    """`steps_per_epoch` None: the dataset's own size. `steps_per_execution` None: chosen by the runtime."""

    epochs: int = 1
    steps_per_epoch: int | None = None
    global_batch_size: int = 64
    steps_per_execution: int | None = None

    @classmethod
    def read(cls, parameters: Mapping[str, Any]) -> TrainingParameters:
        """Raises Failure that names `spec.program.parameters.<name>`."""
        return cls(
            epochs=_positive(parameters, "epochs", 1),
            steps_per_epoch=_optional(parameters, "stepsPerEpoch"),
            global_batch_size=_positive(parameters, "globalBatchSize", 64),
            steps_per_execution=_optional(parameters, "stepsPerExecution"),
        )


def _optional(parameters: Mapping[str, Any], name: str) -> int | None:
    return None if parameters.get(name) is None else _positive(parameters, name, 0)


def _positive(parameters: Mapping[str, Any], name: str, default: int) -> int:
    value = parameters.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _wrong(name, value)
    return value


def _wrong(name: str, value: Any) -> Failure:
    return program_error(f"spec.program.parameters.{name}: expected a whole number from 1, got {value!r}")
