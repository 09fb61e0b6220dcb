"""The sidecar evaluator: it scores the checkpoints that the chief writes, and leaves after the last.

`spec.evaluation.method` chooses between the two ways of TensorFlow's parameter-server tutorial: a loop over
`tf.train.checkpoints_iterator`, and Keras' `SidecarEvaluator`.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from worker.checkpoints.best import best_of_evaluator
from worker.checkpoints.files import open_files
from worker.checkpoints.model_directory import ModelDirectory
from worker.context import Hooks, Loop
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Done, Evaluation, Ready
from worker.evaluation import scoring
from worker.evaluation.scoring import Scorer
from worker.failures import is_lost_peer, lost_chief, program_error, writing
from worker.input import datasets
from worker.parameters import CheckpointPlan, TrainingParameters
from worker.peers.chief_watch import ChiefWatch
from worker.program import LoadedProgram
from worker.progress import curves
from worker.reporting import Reporter, as_floats
from worker.steps.model_build import build
from worker.steps.replica_model import replica_model
from worker.task import Task
from worker.tf_compat import keras_models
from worker.tf_compat.replaced_methods import replaced

_POLL_SECONDS = 0.25
_POLL_URL_SECONDS = 5.0
_NOTE = "logs/evaluation/evaluated.json"
_NUMBER = re.compile(r"ckpt-(\d+)$")
_checkpoints_iterator = tf.train.checkpoints_iterator  # `_replaced` puts another function in its place


class Evaluator:
    """Scores checkpoints. `run` blocks until the run is over, or its chief is lost, and every checkpoint that
    must be scored is scored.

    `logs/evaluation/evaluated.json` in the model directory keeps the last scored checkpoint, so that a
    restarted evaluator resumes there.
    """

    def __init__(
        self,
        task: Task,
        program: LoadedProgram,
        reporter: Reporter,
        enter: Callable[[str], None],
        scored: Callable[[], None] = lambda: None,
        *,
        strategy: tf.distribute.Strategy | None = None,
        folder: str = "",
        ended: Callable[[], bool] = lambda: False,
    ) -> None:
        """`enter` is called with what the task begins to do, `scored` when a score is written. The model is
        of `strategy`, or of none. The checkpoints are those of a `folder` of the model directory, of which
        the last is written when `ended()`, or when the run is over.
        """
        config = task.config
        if not config.model_dir:
            raise program_error("spec.modelDir: an evaluator needs it, to find the checkpoints")
        self._config = config
        self._reporter = reporter
        self._enter = enter
        self._scored = scored
        # A bucket may be gone for a while: nobody waits for the evaluator.
        files = open_files(config.model_dir, patience=config.chief_lost_seconds, notice=reporter.notice)
        self._run = self._directory = ModelDirectory(config.model_dir, files=files)
        if folder:
            self._directory = ModelDirectory(self._run.path(folder))
        self._ended = ended
        self._loop = Loop(
            program=program,
            # The evaluator has one replica, with the batch size of one replica of the training.
            parameters=TrainingParameters.read(config.parameters).with_replicas(1),
            strategy=strategy or tf.distribute.get_strategy(),
            directory=self._directory,
            writes=True,
            count_workers=lambda: 1,
            validates=True,
            hooks=Hooks(reporter, enter=enter),
        )
        plan = CheckpointPlan.read(config.checkpoints, config.parameters)
        self._best = best_of_evaluator(
            self._directory.files, plan.best, plan.mode, config.run_id, offers=True
        )
        self._latest_only = config.evaluation.get("checkpoints", "All") == "Latest"
        self._poll = _POLL_URL_SECONDS if "://" in config.model_dir else _POLL_SECONDS
        self._chief = (
            ChiefWatch(config.chief_address, config.chief_lost_seconds, config.starting_deadline_seconds)
            if config.chief_address
            else None
        )
        self._over = False
        self._without_chief = False
        self._evaluated = 0
        self._writer: Any = None

    def run(self) -> int:
        """Returns the exit code."""
        self.score()
        self._check_scored()
        self._reporter.emit(Done())
        return ExitCode.DONE

    def score(self) -> None:
        """Scores the checkpoints until the last. Raises Failure where the chief is lost."""
        check_program(self._loop.program)
        # The model comes first: lookup tables that a dataset uses are made in it.
        model = replica_model(self._loop)
        by_keras = self._config.evaluation.get("method") == "SidecarEvaluator"
        score_all = self._by_keras(model) if by_keras else self._by_loop(model)
        self._enter("waiting for a checkpoint")
        self._reporter.emit(Ready())
        if self._is_claimed():
            self._evaluated = self._read_note()
            score_all()
        if self._without_chief:
            raise lost_chief(self._config.chief_lost_seconds)

    @property
    def is_over(self) -> bool:
        """Returns whether no checkpoint will come, as far as is known now."""
        return self._is_over() or self._ended()

    def _check_scored(self) -> None:
        """Raises Failure where the run is done and no checkpoint was scored, which would look
        like a success.
        """
        if self._read_note():
            return
        state = self._run.read_state()
        phase = state.phase if state is not None and state.run_id == self._config.run_id else ""
        if phase == "done":
            raise program_error(
                "the run has ended, and no checkpoint of it was scored: none could be read from "
                f"{self._directory.path('checkpoints')}"
            )
        why = "the run has failed" if phase == "failed" else "another run has its model directory now"
        self._reporter.notice(f"no checkpoint was scored: {why}")

    def _by_loop(self, model: Any) -> Callable[[], None]:
        """Returns what scores the checkpoints until the last."""
        scorer = scoring.of_model(self._loop, model)

        def score_all() -> None:
            for _ in self._arrivals():
                self._score_all(model, scorer)
            # The last one may be missing from the file that the iterator reads, if its writer was killed.
            self._score_all(model, scorer)

        return score_all

    def _by_keras(self, model: Any) -> Callable[[], None]:
        """Returns what scores the checkpoints until the last by Keras' SidecarEvaluator."""
        program = self._loop.program
        if keras_models.is_keras_3(model):
            raise program_error(
                f"spec.evaluation.method: {program.entrypoint}: model() is of Keras 3, which has no "
                "SidecarEvaluator: use Loop"
            )
        dataset, _ = datasets.evaluation_dataset(self._loop)
        build(model, dataset.element_spec, program.entrypoint)
        if program.has("loss") and not model.loss:
            keras_models.compile_with_loss(model, program.loss)
        evaluator = tf.keras.utils.SidecarEvaluator(
            model,
            data=dataset.prefetch(tf.data.AUTOTUNE),
            checkpoint_dir=self._directory.files.local("checkpoints"),
            # The number of the last checkpoint, whatever checkpointEpochs is.
            max_evaluations=self._loop.parameters.epochs,
            callbacks=[_Scored(self._report)],
        )

        def score_all() -> None:
            # It does not end with a run that failed, and does not say which checkpoint it scores.
            with _replaced(evaluator, self._newer):
                evaluator.start()

        return score_all

    def _newer(self, *_: Any, **__: Any) -> Iterator[str]:
        """Yields to SidecarEvaluator each latest checkpoint as it appears, except for those scored before a
        restart.
        """
        for path in self._arrivals():
            number = _NUMBER.search(path)
            if number and int(number.group(1)) > self._evaluated:
                self._enter(f"evaluating checkpoint {number.group(1)}")
                self._epoch = int(number.group(1))
                yield path

    def _arrivals(self) -> Iterator[str]:
        folder = self._directory.files.local("checkpoints")
        self._directory.fetch_newest()
        yield from _checkpoints_iterator(folder, timeout=0, timeout_fn=self._is_finished)

    def _is_finished(self) -> bool:
        """Returns whether the iterator may end. The iterator asks when there is no new checkpoint, and after
        each evaluation. It ends only when it has looked once more after the run was known to be over, so that
        it misses none.
        """
        known, self._over = self._over, self._over or self.is_over
        if not known:
            time.sleep(self._poll)
            self._directory.fetch_newest()
        return known

    def _is_claimed(self) -> bool:
        """Waits until the chief has claimed the model directory: older checkpoints are an earlier run's.
        Returns False where the chief will not claim it.
        """
        while (state := self._run.read_state()) is None or state.run_id != self._config.run_id:
            if self._is_chief_lost():
                return False
            time.sleep(self._poll)
        return True

    def _is_over(self) -> bool:
        state = self._run.read_state()
        if state is not None and (state.run_id != self._config.run_id or state.phase in ("done", "failed")):
            return True
        return self._is_chief_lost()

    def _is_chief_lost(self) -> bool:
        self._without_chief = self._chief is not None and self._chief.lost
        return self._without_chief

    def _score_all(self, model: Any, scorer: Scorer) -> None:
        """Scores every checkpoint that is there and not scored."""
        state = self._run.read_state()
        if state is not None and state.run_id != self._config.run_id:
            return  # another run has claimed the model directory
        due = [epoch for epoch in self._directory.epochs() if epoch > self._evaluated]
        for epoch in due[-1:] if self._latest_only else due:
            self._enter(f"evaluating checkpoint {epoch}")
            if self._load(model, epoch):
                self._epoch = epoch
                self._report(scorer.run())
            self._evaluated = epoch

    def _load(self, model: Any, epoch: int) -> bool:
        """Returns False for a checkpoint that was removed in the meantime."""
        try:
            self._directory.load(model, epoch)
        except (AssertionError, ValueError) as error:
            raise program_error(
                f"{self._directory.checkpoint(epoch)} does not match model(): {str(error).splitlines()[0]}"
            ) from error
        except tf.errors.OpError as error:
            if epoch in self._directory.epochs() and not is_lost_peer(error):
                raise
            return False
        return True

    def _report(self, metrics: dict[str, float]) -> None:
        """Reports the metrics of the checkpoint `self._epoch`."""
        epoch, folder = self._epoch, self._directory.files.logs("logs/evaluation")
        with writing(folder):
            self._writer = self._writer or tf.summary.create_file_writer(folder)
            with self._writer.as_default():
                curves.write(metrics, epoch)
                self._writer.flush()
        self._reporter.emit(Evaluation(f"ckpt-{epoch}", epoch, metrics))
        self._evaluated = epoch
        if self._best is not None:
            self._best.check(metrics, self._reporter.notice)
            self._best.offer(epoch, metrics)
        self._write_note()
        self._scored()

    def _read_note(self) -> int:
        """Returns the newest checkpoint of this run that was scored; 0 where none was."""
        try:
            document = json.loads(self._directory.files.read(_NOTE) or "")
            return int(document["epoch"]) if document["runId"] == self._config.run_id else 0
        except (ValueError, KeyError, TypeError):
            return 0

    def _write_note(self) -> None:
        document = {"runId": self._config.run_id, "epoch": self._evaluated}
        self._directory.files.write(_NOTE, json.dumps(document) + "\n")
        self._directory.files.settle()


def check_program(program: LoadedProgram) -> None:
    """Raises Failure where the program cannot be evaluated."""
    if not program.has("evaluation_dataset"):
        raise program_error(
            f"{program.entrypoint} has no method evaluation_dataset(batch_size), which spec.evaluator needs"
        )


class _Scored(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Reports the result of `Model.evaluate`."""

    def __init__(self, report: Callable[[dict[str, float]], None]) -> None:
        super().__init__()
        self._report = report

    def on_test_end(self, logs: Any = None) -> None:
        metrics = as_floats(logs)
        if not (keras_models.computes_loss(self.model) or keras_models.has_own(self.model, "test_step")):
            metrics.pop("loss", None)
        self._report(metrics)


@contextlib.contextmanager
def _replaced(evaluator: Any, iterator: Callable[..., Iterator[str]]) -> Iterator[None]:
    """Replaces tf.train.checkpoints_iterator by `iterator` for `evaluator`, within the block."""
    with replaced(sys.modules[type(evaluator).__module__].tf.train, checkpoints_iterator=iterator):
        yield
