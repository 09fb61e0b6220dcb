"""The sidecar evaluator: evaluates every checkpoint that the chief writes, and leaves after the last."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from worker.checkpoints import ModelDirectory
from worker.contract import Event, ExitCode
from worker.failures import is_lost_peer, program_error, writing
from worker.parameters import TrainingParameters
from worker.peers import ChiefWatch
from worker.program import LoadedProgram
from worker.reporting import Reporter, as_floats
from worker.task import Task

_POLL_SECONDS = 0.25
_POLL_URL_SECONDS = 5.0


class Evaluator:
    """`run` blocks until the run is over, or its chief has gone, and every checkpoint is evaluated."""

    def __init__(
        self, task: Task, program: LoadedProgram, reporter: Reporter, enter: Callable[[str], None]
    ) -> None:
        config = task.config
        if not config.model_dir:
            raise program_error("spec.modelDir: an evaluator needs it, to find the checkpoints")
        self._task = task
        self._program = program
        self._reporter = reporter
        self._enter = enter
        self._parameters = TrainingParameters.read(config.parameters)
        self._directory = ModelDirectory(config.model_dir)
        self._poll = _POLL_URL_SECONDS if "://" in config.model_dir else _POLL_SECONDS
        self._chief = (
            ChiefWatch(config.chief_address, config.chief_lost_seconds, config.starting_deadline_seconds)
            if config.chief_address
            else None
        )

    def run(self) -> int:
        """Returns the exit code."""
        check_program(self._program)
        self._enter("running evaluation_dataset()")
        dataset = self._program.evaluation_dataset(self._parameters.global_batch_size)
        if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
            raise program_error(f"{self._program.entrypoint}: evaluation_dataset() must be finite")
        dataset = dataset.prefetch(tf.data.AUTOTUNE)
        self._enter("running model()")
        model = self._program.model()
        if not model.built:
            features = next(iter(dataset))
            model(features[0] if isinstance(features, tuple) else features)
        self._enter("waiting for a checkpoint")
        evaluated = 0
        writer: Any = None
        while True:
            # In this order: what is done when the state says so has all its checkpoints.
            ending = self._is_over() or (self._chief is not None and self._chief.lost)
            for epoch in self._epochs():
                if epoch <= evaluated:
                    continue
                metrics = self._evaluate(model, dataset, epoch)
                evaluated = epoch
                if metrics is not None:
                    writer = writer or self._writer()
                    self._report(writer, epoch, metrics)
            if ending:
                self._reporter.emit(Event.DONE)
                return ExitCode.DONE
            time.sleep(self._poll)

    def _is_over(self) -> bool:
        state = self._directory.read_state()
        return state is not None and self._is_own(state.run_id) and state.phase in ("done", "failed")

    def _epochs(self) -> list[int]:
        """None before the chief has claimed the directory: they would be those of an earlier run."""
        state = self._directory.read_state()
        return self._directory.epochs() if state is not None and self._is_own(state.run_id) else []

    def _is_own(self, run_id: str) -> bool:
        return run_id == self._task.config.run_id

    def _evaluate(self, model: Any, dataset: Any, epoch: int) -> dict[str, float] | None:
        """None for a checkpoint that was removed meanwhile."""
        self._enter(f"evaluating checkpoint {epoch}")
        try:
            self._directory.load(model, epoch)
        except (AssertionError, ValueError) as error:
            raise program_error(
                f"{self._directory.checkpoint(epoch)} does not match model(): {str(error).splitlines()[0]}"
            ) from error
        except tf.errors.OpError as error:
            if epoch in self._directory.epochs() and not is_lost_peer(error):
                raise
            return None
        return as_floats(model.evaluate(dataset, verbose=0, return_dict=True))

    def _writer(self) -> Any:
        path = self._directory.path("logs", "evaluation")
        with writing(path):
            return tf.summary.create_file_writer(path)

    def _report(self, writer: Any, epoch: int, metrics: dict[str, float]) -> None:
        with writing(self._directory.path("logs", "evaluation")), writer.as_default():
            for name, value in metrics.items():
                # The names and the step of Keras' TensorBoard callback: one chart for both curves.
                tf.summary.scalar(f"epoch_{name}", value, step=epoch - 1)
            writer.flush()
        self._reporter.emit(Event.EVALUATION, checkpoint=f"ckpt-{epoch}", epoch=epoch, metrics=metrics)


def check_program(program: LoadedProgram) -> None:
    """Raises Failure where the program cannot be evaluated."""
    if not program.has("evaluation_dataset"):
        raise program_error(
            f"{program.entrypoint} has no method evaluation_dataset(batch_size), which spec.evaluator needs"
        )
