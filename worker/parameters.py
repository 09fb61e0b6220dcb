"""The parameters that the runtime itself reads from `spec.program.parameters`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from worker.failures import Failure, program_error

GLOBAL: Final = "globalBatchSize"
PER_REPLICA: Final = "batchSizePerReplica"
ITERATIONS: Final = ("steps", "batches", "epoch")


@dataclass(frozen=True)
class TrainingParameters:
    """`steps_per_epoch` None: the dataset's own size. `steps_per_execution` None ("auto"): found in training.

    `checkpoint_epochs`: a checkpoint after every so many epochs, and always after the last. `iteration` is
    how a custom loop goes over its data: "steps" packs `steps_per_execution` steps into one call, "batches"
    calls the step for each batch of the dataset, "epoch" runs the whole epoch in one call.

    Where `batch_size_per_replica` is given, `global_batch_size` is only right after `with_replicas`.
    """

    epochs: int = 1
    steps_per_epoch: int | None = None
    global_batch_size: int = 64
    batch_size_per_replica: int | None = None
    steps_per_execution: int | None = None
    checkpoint_epochs: int = 1
    iteration: str = "steps"

    @classmethod
    def read(cls, parameters: Mapping[str, Any]) -> TrainingParameters:
        """Raises Failure that names `spec.program.parameters.<name>`."""
        packed = dict(parameters)
        if packed.get("stepsPerExecution") == "auto":
            packed["stepsPerExecution"] = None
        iteration = _iteration(parameters.get("iteration", "steps"))
        if iteration != "steps" and parameters.get("stepsPerExecution") is not None:
            raise program_error(
                f"spec.program.parameters.stepsPerExecution: iteration: {iteration} leaves no choice; remove "
                "it, or use iteration: steps"
            )
        if parameters.get(GLOBAL) is not None and parameters.get(PER_REPLICA) is not None:
            raise program_error(f"spec.program.parameters.{PER_REPLICA}: give it or {GLOBAL}, not both")
        return cls(
            epochs=_positive(parameters, "epochs", 1),
            steps_per_epoch=_optional(parameters, "stepsPerEpoch"),
            global_batch_size=_optional(parameters, GLOBAL) or cls.global_batch_size,
            batch_size_per_replica=_optional(parameters, PER_REPLICA),
            steps_per_execution=_optional(packed, "stepsPerExecution"),
            checkpoint_epochs=_positive(parameters, "checkpointEpochs", 1),
            iteration=iteration,
        )

    def with_replicas(self, count: int) -> TrainingParameters:
        """For so many replicas that take each step together: the strategy's `num_replicas_in_sync`."""
        if self.batch_size_per_replica is None:
            return self
        return replace(self, global_batch_size=count * self.batch_size_per_replica)

    def size_for(self, global_batch_size: int) -> str:
        """The parameter that would make batches of this size: `globalBatchSize: 32`."""
        given = self.batch_size_per_replica
        replicas = self.global_batch_size // given if given is not None else 1
        if given is not None and global_batch_size % replicas == 0:
            return f"{PER_REPLICA}: {global_batch_size // replicas}"
        return f"{GLOBAL}: {global_batch_size}"


def _iteration(value: Any) -> str:
    if value not in ITERATIONS:
        expected = " or ".join(ITERATIONS)
        raise program_error(f"spec.program.parameters.iteration: expected {expected}, got {value!r}")
    return str(value)


def _optional(parameters: Mapping[str, Any], name: str) -> int | None:
    return None if parameters.get(name) is None else _positive(parameters, name, 0)


def _positive(parameters: Mapping[str, Any], name: str, default: int) -> int:
    value = parameters.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _wrong(name, value)
    return value


def _wrong(name: str, value: Any) -> Failure:
    return program_error(f"spec.program.parameters.{name}: expected a whole number from 1, got {value!r}")
