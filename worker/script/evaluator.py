"""A script in the sidecar evaluator: each `fit` scores the checkpoints of the task that trains."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import tensorflow as tf

from worker.checkpoints.files import open_files
from worker.checkpoints.model_directory import ModelDirectory
from worker.context import Hooks, Loop
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Done
from worker.evaluation.sidecar import Evaluator
from worker.failures import Left, program_error
from worker.parameters import TrainingParameters
from worker.reporting import Reporter, as_numbers
from worker.script import working_directory
from worker.script.fit import Fit, with_logs
from worker.script.run import run_script
from worker.task import Task
from worker.training.fitting import Fitting

_POLL_SECONDS = 0.5


def evaluate(task: Task, reporter: Reporter, enter: Callable[[str], None], scored: Callable[[], None]) -> int:
    """Returns the exit code. The script ends when the training has ended."""
    config = task.config
    if not config.model_dir:
        raise program_error("spec.modelDir: an evaluator needs it, to find the checkpoints")
    directory = ModelDirectory(config.model_dir, files=open_files(config.model_dir))
    strategy = tf.distribute.OneDeviceStrategy(
        "/gpu:0" if tf.config.list_physical_devices("GPU") else "/cpu:0"
    )

    def loop(program: Any, parameters: TrainingParameters) -> Loop:
        hooks = Hooks(reporter, enter=enter)
        return Loop(program, parameters, strategy, None, False, lambda: 1, True, hooks)

    def nothing(*_: Any) -> None:
        """The task that trains tells the user."""

    fitting = Fitting(
        strategy=strategy,
        directory=directory,
        writes=False,
        parameters=TrainingParameters.read(config.parameters),
        place=lambda name: ModelDirectory(directory.path(name)) if name else directory,
        fit=_refuse,
        loop=loop,
        idle=lambda: enter("running the script"),
        notice=nothing,
    )
    watcher = partial(_Watching, task=task, reporter=reporter, enter=enter, scored=scored)
    try:
        run_script(task, fitting, watcher)
    except Left as left:
        if left.exit_code != ExitCode.DONE:
            raise
    reporter.emit(Done())
    return ExitCode.DONE


class _Watching(Fit):
    """A call of `fit` in the evaluator: it returns when that of the task that trains has ended."""

    def __init__(
        self,
        *arguments: Any,
        task: Task,
        reporter: Reporter,
        enter: Callable[[str], None],
        scored: Callable[[], None],
    ) -> None:
        super().__init__(*arguments)
        self._task = task
        self._reporter = reporter
        self._evaluator = Evaluator(
            task,
            self.program,
            reporter,
            enter,
            scored,
            strategy=self.fitting.strategy,
            folder=self.folder,
            ended=self._has_ended,
        )

    def run(self) -> Any:
        """Returns the History of the task that trains, once the model has what it has left there."""
        if self.program.has("evaluation_dataset"):
            self._evaluator.score()
        while not self._evaluator.is_over:
            time.sleep(_POLL_SECONDS)
        record = self.records.newest(self.number, self.call)
        if record is None or not record.done:
            self._reporter.notice("the run has ended before its training")
            raise Left(ExitCode.DONE)
        self.restore(record, self.fitting.place(self.folder))
        working_directory.refresh(self._task.config.model_dir)
        return with_logs(self.model, [(epoch, as_numbers(logs)) for epoch, logs in record.logs])

    def _has_ended(self) -> bool:
        record = self.records.newest(self.number, self.call)
        return record is not None and record.done


def _refuse(*_: Any) -> NoReturn:
    raise AssertionError("an evaluator trains nothing")
