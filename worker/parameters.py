"""The parameters that the runtime itself reads from `spec.program.parameters`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from worker.contract.parameters import BATCH_SIZES, ITERATIONS, parameter_problems
from worker.failures import program_error

GLOBAL, PER_REPLICA = BATCH_SIZES


@dataclass(frozen=True)
class TrainingParameters:
    """The parameters of the training. `steps_per_epoch` is None for the dataset's own size.
    `steps_per_execution` is None ("auto") for a number that is measured during training.

    `iteration` says how a custom loop iterates over its data: "steps" takes `steps_per_execution` steps in
    one call, "batches" calls the step for each batch of the dataset, "epoch" runs the whole epoch in one
    call. A script's `fit` may begin with `initial_epoch`, and validates after the epochs, from 1, that are in
    `validation_freq` or are multiples of it.

    Where `batch_size_per_replica` is given, `global_batch_size` is valid only after `with_replicas`. With
    `has_size` False it is a guess: the dataset of a script does not tell.
    """

    epochs: int = 1
    steps_per_epoch: int | None = None
    global_batch_size: int = 64
    batch_size_per_replica: int | None = None
    steps_per_execution: int | None = None
    iteration: str = ITERATIONS[0]
    initial_epoch: int = 0
    validation_freq: int | Collection[int] = 1
    has_size: bool = True

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
            iteration=parameters.get("iteration") or cls.iteration,
        )

    def with_replicas(self, count: int) -> TrainingParameters:
        """Returns the parameters for `count` replicas that take each step together: the strategy's
        `num_replicas_in_sync`.
        """
        if self.batch_size_per_replica is None:
            return self
        return replace(self, global_batch_size=count * self.batch_size_per_replica)

    def validates(self, epoch: int) -> bool:
        """Returns whether `epoch`, from 0, ends with an evaluation."""
        frequency = self.validation_freq
        if isinstance(frequency, int):
            return (epoch + 1) % frequency == 0
        return epoch + 1 in frequency

    def size_for(self, global_batch_size: int) -> str:
        """Returns the parameter that gives batches of this size, such as `globalBatchSize: 32`."""
        given = self.batch_size_per_replica
        replicas = self.global_batch_size // given if given is not None else 1
        if given is not None and global_batch_size % replicas == 0:
            return f"{PER_REPLICA}: {global_batch_size // replicas}"
        return f"{GLOBAL}: {global_batch_size}"


@dataclass(frozen=True)
class CheckpointPlan:
    """When a training is saved, and what is kept: `spec.checkpoints`, and the parameters checkpointEpochs and
    keepCheckpoints, which are older names of everyEpochs and keep.

    The last epoch always has a checkpoint. Where neither `every_seconds` nor `every_steps` is given, what a
    save costs decides how often the middle of an epoch is saved. `keep` is the number of epochs' checkpoints
    that stay, the newest; the best by the metric `best` stays, too, where it is not None. `mode` is Min or
    Max.
    """

    every_seconds: int | None = None
    every_steps: int | None = None
    every_epochs: int = 1
    keep: int = 5
    best: str | None = None
    mode: str = "Min"

    @classmethod
    def read(cls, checkpoints: Mapping[str, Any], parameters: Mapping[str, Any]) -> CheckpointPlan:
        """Reads the two. The launcher has refused a file in which they contradict each other."""
        best = checkpoints.get("keepBest") or {}
        return cls(
            checkpoints.get("everySeconds"),
            checkpoints.get("everySteps"),
            checkpoints.get("everyEpochs") or parameters.get("checkpointEpochs", cls.every_epochs),
            checkpoints.get("keep") or parameters.get("keepCheckpoints", cls.keep),
            best.get("metric"),
            best.get("mode", cls.mode),
        )
