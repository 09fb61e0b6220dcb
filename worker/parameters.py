"""The parameters that the runtime itself reads from `spec.program.parameters`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from worker.contract.parameters import BATCH_SIZES, ITERATIONS, parameter_problems
from worker.failures import program_error

GLOBAL, PER_REPLICA = BATCH_SIZES


@dataclass(frozen=True)
class TrainingParameters:
    """The parameters of the training. `steps_per_epoch` is None for the dataset's own size.
    `steps_per_execution` is None ("auto") for a number that is measured during training.

    `checkpoint_epochs` is the number of epochs between two checkpoints; the last epoch always has one.
    `keep_checkpoints` is how many of them are kept, the newest.
    `iteration` says how a custom loop iterates over its data: "steps" takes `steps_per_execution` steps in
    one call, "batches" calls the step for each batch of the dataset, "epoch" runs the whole epoch in one
    call.

    Where `batch_size_per_replica` is given, `global_batch_size` is valid only after `with_replicas`.
    """

    epochs: int = 1
    steps_per_epoch: int | None = None
    global_batch_size: int = 64
    batch_size_per_replica: int | None = None
    steps_per_execution: int | None = None
    checkpoint_epochs: int = 1
    keep_checkpoints: int = 5
    iteration: str = ITERATIONS[0]

    @classmethod
    def read(cls, parameters: Mapping[str, Any]) -> TrainingParameters:
        """Raises Failure that names `spec.program.parameters.<name>`."""
        for name, message in parameter_problems(parameters):
            raise program_error(f"spec.program.parameters.{name}: {message}")
        steps_per_execution = parameters.get("stepsPerExecution")
        return cls(
            epochs=parameters.get("epochs", cls.epochs),
            steps_per_epoch=parameters.get("stepsPerEpoch"),
            global_batch_size=parameters.get(GLOBAL) or cls.global_batch_size,
            batch_size_per_replica=parameters.get(PER_REPLICA),
            steps_per_execution=None if steps_per_execution == "auto" else steps_per_execution,
            checkpoint_epochs=parameters.get("checkpointEpochs", cls.checkpoint_epochs),
            keep_checkpoints=parameters.get("keepCheckpoints", cls.keep_checkpoints),
            iteration=parameters.get("iteration") or cls.iteration,
        )

    def with_replicas(self, count: int) -> TrainingParameters:
        """Returns the parameters for `count` replicas that take each step together: the strategy's
        `num_replicas_in_sync`.
        """
        if self.batch_size_per_replica is None:
            return self
        return replace(self, global_batch_size=count * self.batch_size_per_replica)

    def size_for(self, global_batch_size: int) -> str:
        """Returns the parameter that gives batches of this size, such as `globalBatchSize: 32`."""
        given = self.batch_size_per_replica
        replicas = self.global_batch_size // given if given is not None else 1
        if given is not None and global_batch_size % replicas == 0:
            return f"{PER_REPLICA}: {global_batch_size // replicas}"
        return f"{GLOBAL}: {global_batch_size}"
