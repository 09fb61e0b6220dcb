"""Writes a trained model's predictions for a program's `predict_dataset`: `spec.mode: Predict`.

The tasks of a synchronous strategy need not wait for each other: each reads all of the data, and predicts its
own parts on its own devices. Under ParameterServer only the chief reads the data: it sends the batches to the
workers, and writes the results. In both cases each example is in one part, which appears only when it is
complete, and a task that is retried continues with the missing parts.
"""

from __future__ import annotations

import collections
import hashlib
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from worker.checkpoints.model_directory import ModelDirectory
from worker.context import Loop
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Predicted, Predicting
from worker.evaluation import trained_model
from worker.failures import Failure, program_error
from worker.input.batch_division import batch_count
from worker.input.seeding import alike
from worker.parameters import TrainingParameters
from worker.prediction.files import DONE, PREDICTING, PredictionFiles, PredictionState, lines, part_sizes
from worker.prediction.forward_pass import ForwardPass
from worker.program import LoadedProgram
from worker.progress.records import RECORD_SECONDS
from worker.reporting import Reporter
from worker.steps import model_build
from worker.steps.replica_model import replica_model
from worker.task import Task
from worker.tf_compat.graphs import shuffles
from worker.tf_compat.strategies import uses_coordinator

_AHEAD_PER_WORKER = 4
"""Number of batches that are sent to the workers before the first of them is written."""
_POLL_SECONDS = 0.5
_POLL_URL_SECONDS = 5.0


@dataclass(frozen=True)
class Share:
    """The parts of this task: those whose number is `index` modulo `count`."""

    index: int
    count: int

    @classmethod
    def of(cls, task: Task) -> Share:
        """Under ParameterServer all parts are the chief's. The primary task's index is 0."""
        if not task.config.is_collective:
            return cls(0, 1)
        chiefs = len(task.cluster.get("chief", {}))
        workers = len(task.cluster.get("worker", {}))
        return cls(task.index + (chiefs if task.role == "worker" else 0), max(1, chiefs + workers))

    def batch_size(self, parameters: TrainingParameters) -> int:
        """Returns the size of the batches that the program makes: a task's part of a global batch in
        training.

        `parameters` are for the replicas of this task.
        """
        if parameters.batch_size_per_replica is not None:
            return parameters.global_batch_size
        return max(1, parameters.global_batch_size // self.count)


@dataclass(frozen=True)
class _Batch:
    """A batch. `first` is the index of its first example in the data, `part` the number of its part."""

    part: int
    first: int
    size: int
    features: Any
    keys: Any


def check_program(program: LoadedProgram) -> None:
    """Raises Failure where the program has no `predict_dataset`."""
    if not program.has("predict_dataset"):
        raise program_error(
            f"{program.entrypoint} has no method predict_dataset(batch_size), which mode: Predict needs"
        )


def begin(
    task: Task, directory: ModelDirectory, files: PredictionFiles, size: int, notice: Callable[[str], None]
) -> PredictionState:
    """Returns the state of the prediction, as the primary task. It keeps the parts that are there, or removes
    them.

    It keeps those of an unfinished prediction with the same checkpoint, program, parameters and batch `size`.
    """
    before, config = files.read_state(), task.config
    same_run = before is not None and before.run_id == config.run_id != ""
    wanted = config.checkpoint
    if before is not None and same_run and trained_model.epoch_of(before.checkpoint) in directory.epochs():
        wanted = before.checkpoint  # a training that still runs may have written a newer checkpoint since
    name = f"ckpt-{trained_model.choose(directory, wanted)}"
    fingerprint = _fingerprint(task, directory, trained_model.epoch_of(name), size)
    state = PredictionState(config.run_id, PREDICTING, name, fingerprint)
    if before is not None and (before.phase, before.fingerprint) == (PREDICTING, fingerprint):
        done = len(files.parts())
        if done and not same_run:
            notice(f"{files.root} holds an earlier run that did not finish: resuming after its {done} files")
    else:
        files.clear()
    files.write_state(state)
    return state


def await_begun(task: Task, files: PredictionFiles, alive: Callable[[], None]) -> PredictionState:
    """Waits for the state that the primary task writes. Raises Failure (RETRYABLE) where it does not write
    it.
    """
    seconds = task.config.starting_deadline_seconds
    deadline = time.monotonic() + seconds
    while (state := files.read_state()) is None or state.run_id != task.config.run_id:
        alive()
        if time.monotonic() > deadline:
            message = f"after {seconds} s the first task had not begun (startingDeadlineSeconds)"
            raise Failure(message, ExitCode.RETRYABLE)
        time.sleep(_POLL_SECONDS)
    return state


def report_done(reporter: Reporter, files: PredictionFiles, state: PredictionState) -> None:
    """Reports where the predictions are, if `state` has all of them."""
    assert state.examples is not None and state.parts is not None  # noqa: S101, PT018 - for the type checker
    reporter.emit(Predicted(files.root, state.examples, state.parts))


def predict(
    loop: Loop, directory: ModelDirectory, files: PredictionFiles, state: PredictionState, share: Share
) -> None:
    """Predicts this task's share. The primary task then waits for the other tasks, and reports that all is
    done.
    """
    _Prediction(loop, directory, files, state, share).run()


def _fingerprint(task: Task, directory: ModelDirectory, epoch: int, size: int) -> str:
    """Returns a digest of everything that the predictions, and their division into parts, depend on."""
    config = task.config
    settings = [config.entrypoint, config.keras, config.parameters, config.strategy, config.replicas, size]
    digest = hashlib.sha256(json.dumps([*settings, directory.checkpoint(epoch)], sort_keys=True).encode())
    digest.update(directory.index(epoch))  # it has a checksum of each tensor
    for path in sorted(task.source.rglob("*")) if task.source is not None else ():
        name = path.relative_to(task.source or path)
        left_out = any(part.startswith(".") or part == "__pycache__" for part in name.parts)
        if path.is_file() and not left_out:
            digest.update(f"\n{name} {path.stat().st_size}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


class _Prediction:
    def __init__(
        self,
        loop: Loop,
        directory: ModelDirectory,
        files: PredictionFiles,
        state: PredictionState,
        share: Share,
    ) -> None:
        program = loop.program
        self._loop = loop
        self._files = files
        self._state = state
        self._share = share
        self._size = share.batch_size(loop.parameters)
        self._counted = self._all = self._parts = 0
        self._predicted = self._recorded = 0
        self._recorded_at = time.monotonic()
        loop.hooks.kept.append(self)
        # The model comes first: lookup tables that a dataset uses are made in it.
        model = replica_model(loop)
        with loop.strategy.scope():
            loop.hooks.enter("running predict_dataset()")
            self._dataset = self._checked(alike(program.predict_dataset, self._size))
            features, _ = _split(self._dataset.element_spec)
            model_build.build(model, (features,), program.entrypoint)
            trained_model.load(loop, directory, model, trained_model.epoch_of(state.checkpoint))
            self._forward = ForwardPass(loop.strategy, model, features)

    def run(self) -> None:
        loop = self._loop
        loop.hooks.enter("predicting")
        self._recorded_at = time.monotonic()
        outputs = self._by_workers() if uses_coordinator(loop.strategy) else self._here()
        for part, batches in itertools.groupby(outputs, key=lambda output: output[0].part):
            file = self._files.open_part(part)
            for batch, predictions in batches:
                file.write(lines(batch.first, batch.keys, predictions))
                self._predicted += batch.size
                self._tell()
            self._files.finish_part(file, self._state)
            loop.hooks.saved()
        if not self._all:
            raise program_error(f"{loop.program.entrypoint}: predict_dataset({self._size}) is empty")
        self._tell(over=True)
        if loop.writes:
            self._finish()

    def _finish(self) -> None:
        self._await_others()
        self._files.clear(whole=False)
        state = replace(self._state, phase=DONE, examples=self._all, parts=self._parts)
        self._files.write_state(state)
        report_done(self._loop.hooks.reporter, self._files, state)

    def _await_others(self) -> None:
        """Waits until every part exists. The watchdog ends the wait where no task writes for too long."""
        loop, files, growth = self._loop, self._files, None
        poll = _POLL_URL_SECONDS if "://" in files.root else _POLL_SECONDS
        while missing := len(set(range(self._parts)) - files.parts()):
            if growth != (growth := files.growth()):
                loop.hooks.enter(f"waiting for {missing} files of the other tasks")
            time.sleep(poll)

    def _here(self) -> Iterator[tuple[_Batch, Any]]:
        """Yields each batch with its predictions, which this task's devices compute."""
        for batch in self._batches():
            predictions = self._forward.function(batch.features)
            if not self._predicted:
                self._loop.hooks.stepped()
            yield batch, predictions

    def _by_workers(self) -> Iterator[tuple[_Batch, Any]]:
        """Yields each batch with its predictions, in the order of the batches. Any free worker
        computes them.
        """
        loop = self._loop
        executions = loop.executions()
        waiting: collections.deque[tuple[_Batch, list[Any]]] = collections.deque()

        def oldest() -> tuple[_Batch, Any]:
            batch, (value,) = waiting.popleft()
            if not self._predicted:
                loop.hooks.stepped()
            return batch, value.get()

        for batch in self._batches():
            remote_values: list[Any] = []
            executions.schedule(self._forward.function, (batch.features,), report=remote_values.append)
            waiting.append((batch, remote_values))
            while waiting and (waiting[0][1] or len(waiting) >= _AHEAD_PER_WORKER * loop.workers):
                while not waiting[0][1]:
                    executions.wait()
                yield oldest()
        executions.join()
        while waiting:
            yield oldest()

    def _batches(self) -> Iterator[_Batch]:
        """Yields the batches of this task's missing parts. Counts the examples of all batches."""
        done, share = self._files.parts(), self._share
        sizes, left = part_sizes(share.count), 0
        for element in self._dataset:
            features, keys = _split(element)
            size = int(batch_count(features))
            self._loop.hooks.alive()
            if not size:
                continue
            if not left:
                left, self._parts = next(sizes), self._parts + 1
            left -= 1
            part, first = self._parts - 1, self._all
            self._all += size
            if part % share.count != share.index:
                continue
            if part in done:
                self._counted += size
            else:
                yield _Batch(part, first, size, features, keys)

    def _tell(self, *, over: bool = False) -> None:
        """Emits a record of this task's progress, once a second and at the end."""
        self._loop.hooks.alive()
        now = time.monotonic()
        seconds = now - self._recorded_at
        if seconds >= RECORD_SECONDS or over:
            rate = (self._predicted - self._recorded) / max(seconds, 1e-6)
            self._recorded_at, self._recorded = now, self._predicted
            examples = self._counted + self._predicted
            self._loop.hooks.reporter.emit(Predicting(examples, round(rate, 1)))

    def _checked(self, dataset: Any) -> Any:
        entrypoint = self._loop.program.entrypoint
        call = f"{entrypoint}: predict_dataset({self._size})"
        if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
            raise program_error(f"{entrypoint}: predict_dataset() must be finite")
        element = dataset.element_spec
        if isinstance(element, tuple) and len(element) not in (1, 2):
            raise program_error(f"{call} has tuples of {len(element)}, not features or (features, key)")
        if shuffles(dataset):
            raise program_error(
                f"{call} is shuffled: each task, and each attempt, must read the same order; leave it out "
                "(tf.data.Dataset.list_files shuffles too, unless it is told shuffle=False)"
            )
        return dataset.prefetch(tf.data.AUTOTUNE)


def _split(element: Any) -> tuple[Any, Any]:
    """Splits an element, or its spec, into features and keys; keys may be None."""
    if not isinstance(element, tuple):
        return element, None
    return element[0], element[1] if len(element) == 2 else None
