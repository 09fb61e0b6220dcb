"""The values that a training, an evaluation or a prediction works with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from worker.checkpoints.beside import Beside
from worker.checkpoints.model_directory import ModelDirectory
from worker.contract.run_config import DataService, ElasticWorkers
from worker.parameter_server.executions import Executions
from worker.parameters import TrainingParameters
from worker.process.step_times import StepTimes
from worker.program import LoadedProgram
from worker.reporting import Reporter


def _ignore(*_: Any) -> None:
    """Does nothing."""


@dataclass(frozen=True)
class Hooks:
    """What a loop calls while it works.

    `enter` gets what the task begins to do, `built` the steps of a model that has its variables, before one
    is traced. `coordinates` is called before workers get the first step of a training. `alive` is called at
    every sign of life, `stepped` after the first step, `saved` when a part of the predictions is written,
    `failed` with a step's error before it is raised. `boundary(model, epoch, step, metrics, settle)` is
    called before each execution, and may end the task, `epoch_ended(model, epoch, metrics, is_last)` after
    each epoch: see `saver.Saver`. `taken(steps, settle)` is called before each execution with the number of
    steps until there, `trained(steps)` after the last one: see `training_profile.Profiler`. `times` says
    where the steps' time goes. Objects put into `kept` live as long as the process.
    """

    reporter: Reporter
    enter: Callable[[str], None] = _ignore
    built: Callable[[Any], None] = _ignore
    coordinates: Callable[[], None] = _ignore
    alive: Callable[[], None] = _ignore
    stepped: Callable[[], None] = _ignore
    saved: Callable[[], None] = _ignore
    failed: Callable[[BaseException], None] = _ignore
    boundary: Callable[..., None] = _ignore
    epoch_ended: Callable[..., None] = _ignore
    times: StepTimes = field(default_factory=StepTimes)
    taken: Callable[..., None] = _ignore
    trained: Callable[[int], None] = _ignore
    kept: list[object] = field(default_factory=list)


@dataclass(frozen=True)
class Loop:
    """The values that a training loop works with.

    `directory` is None without a modelDir. `newest` returns the directory with the newest checkpoint or copy
    in memory, None where there is none; all tasks of a collective must call it. `writes` is false in a task
    that takes part in the checkpoints of another task and keeps none. `count_workers()` is the number of
    tasks that take steps, which may change. `strategy_options` and `evaluation` are the spec's.
    `data_service` is None where the run has none. `address` is this task's own, None where it has none.
    `validates` is false where there is an evaluator. `elastic` is set in an elastic collective, whose data
    goes on where another generation has stopped. `evaluator_memory` is the limit of the evaluator's memory in
    bytes, 0 where it has none or none is there. `beside` is what is saved beside the model.
    """

    program: LoadedProgram
    parameters: TrainingParameters
    strategy: tf.distribute.Strategy
    directory: ModelDirectory | None
    writes: bool
    count_workers: Callable[[], int]
    validates: bool
    hooks: Hooks
    strategy_options: Mapping[str, Any] = field(default_factory=dict)
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    address: str | None = None
    newest: Callable[[], ModelDirectory | None] | None = None
    data_service: DataService | None = None
    elastic: ElasticWorkers | None = None
    evaluator_memory: int = 0
    beside: Beside = field(default_factory=Beside)

    @property
    def part_size(self) -> int:
        """Returns the number of examples of a whole batch that a replica gets at most."""
        return -(-self.parameters.global_batch_size // int(self.strategy.num_replicas_in_sync))

    @property
    def workers(self) -> int:
        """Returns how many tasks take steps now."""
        return self.count_workers()

    def executions(self, moved: Callable[[int], None] | None = None) -> Executions:
        """Returns executions on the workers of a ParameterServer run. `moved` is called with the number of
        finished steps; left out, each is a sign of life.
        """
        return Executions(
            tf.distribute.coordinator.ClusterCoordinator(self.strategy),
            self.count_workers,
            moved or (lambda _: self.hooks.alive()),
            self.hooks.failed,
        )

    def notice(self, sentence: str) -> None:
        """Tells the user something that all tasks know: the one that writes says it."""
        if self.writes:
            self.hooks.reporter.notice(self.program.worded(sentence))
