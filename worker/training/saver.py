"""Saves a training: by time, by steps, at the end of epochs, and when the task must leave.

A copy is taken at a boundary between two executions of steps (`state_copy`), and written beside the training.
Two are never written at a time: in the middle of an epoch none is due until the one before is written, and
the end of an epoch or SIGTERM gives up what the middle has begun. What was not finished has no index, and is
none.

The tasks of a collective strategy read what is spread over them together, and must all stop after the same
execution, or those that continue would wait for ever for those that stopped: see `halts`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from worker.checkpoints.beside import Beside
from worker.checkpoints.best import OF_TRAINING, Best, best_of_evaluator
from worker.checkpoints.interval import Costs, between_losses, in_storage
from worker.checkpoints.model_directory import Life, ModelDirectory
from worker.checkpoints.position import Position
from worker.checkpoints.state_copy import Abandoned, StateCopy
from worker.checkpoints.writer import Writer
from worker.collective.halts import Halts
from worker.collective.kv_store import ERRORS
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Checkpoint, Notice
from worker.copies.keeper import Keeper
from worker.failures import Failure, Left, classify, is_lost_peer
from worker.parameters import CheckpointPlan
from worker.process import memory
from worker.process.processors import processors
from worker.process.watch import Silence, Watch
from worker.reporting import Reporter
from worker.task import Task
from worker.tf_compat import keras_models
from worker.training.epoch_metrics import variables_of
from worker.training.preemption import Preemption
from worker.training.variable_sizes import by_device, of_optimizer

Metrics = Callable[[], Iterable[Any]]

_UPLOAD_MARGIN = 6.0
"""Seconds before the end of the grace period at which an upload is given up. The supervisor kills this
process 3 s later.
"""
_LAST_SECONDS = 10.0
"""Seconds for the other tasks to read what is spread over them, once the first task is ready to leave."""
_END_SECONDS = 30.0
"""At the end of an epoch, for what is being written."""
_AGAIN_SECONDS = 30.0
"""From a save that failed to the next one."""
_LAST_AGAIN_SECONDS = 2.0
"""The same at the end of the training."""
_LATE = "within the grace period (terminationGracePeriodSeconds) it could not be written to"
_SERVER_BYTES = 600 << 20
"""What a parameter server takes beside its variables; measured with TensorFlow 2.21."""
_COPY, _KEEP, _STOP = "copy", "keep", "stop"
_UNSAVED = Notice("left without having heard that every other task was ready to")


class Saver:
    """Saves the training of `task` in `directory`, and in memory by `keeper`; without either, SIGTERM ends
    the task at once. The first task writes to the directory, and decides when. `life` says how long the run
    has lived.
    """

    def __init__(
        self,
        task: Task,
        directory: ModelDirectory | None,
        plan: CheckpointPlan,
        reporter: Reporter,
        watch: Watch,
        life: Life | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        self.beside = Beside()
        self._keeper = keeper
        self._directory = directory
        self._plan = plan
        self._reporter = reporter
        self._watch = watch
        self._writes = task.is_primary
        self._grace_seconds = max(1.0, task.grace_seconds - _UPLOAD_MARGIN)
        self._patience = float(task.config.stall_seconds)
        self._preemption = Preemption(task)
        is_collective = task.config.is_collective and bool(task.peers)
        self._halts = Halts(task) if is_collective else None
        self._life = life or Life()
        self._best = _best(task, directory, plan)
        self._writer = Writer(self._failed)
        self._proposed: set[str] = set()
        self._of_epoch = 0
        """The epoch whose checkpoint is being written, 0 for one of the middle."""
        self._saved = Checkpoint(0, 0, 0.0, 0.0)
        self._done: Position | None = None
        """The position of the newest checkpoint that this attempt has written."""
        self._since = time.monotonic()
        """When the newest copy was taken, or the last attempt to save has failed."""
        self._steps = 0
        """How many were taken since then."""
        self._at: Position | None = None
        """The newest boundary's."""
        self._costs = Costs()
        self._write_seconds = 0.0
        """How long the last save was being written."""
        self._error: Failure | None = None
        self._has_notice_room = False
        self._ps_memory = task.config.ps_memory if task.config.is_coordinated else None
        self._last: tuple[int, Mapping[str, float]] | None = None
        """The last epoch of the training, and its metrics."""

    def begin(self) -> None:
        """Begins before training, when the strategy exists."""
        if self._directory is not None or self._keeper is not None:
            self._preemption.begin()
            if self._halts is not None:
                self._halts.watch()

    def end(self, model: Any, ended: Callable[[], None] = lambda: None) -> None:
        """Ends after all steps, when the last checkpoint is where it is kept; then calls `ended`. Raises
        Failure where it cannot be written.
        """
        if self._directory is not None and self._writes:
            self._finish(self._directory, model)
        ended()
        self._preemption.end()

    def boundary(
        self,
        model: Any,
        epoch: int,
        step: int,
        metrics: Metrics,
        settle: Callable[[], float] | None = None,
    ) -> None:
        """Must be called before each execution, when `epoch` epochs and `step` steps of the next are done.

        `metrics` returns those that have counted the epoch's steps. Where steps may only have been scheduled,
        `settle` waits for them. Raises Left when everything is saved and the task must end. Otherwise the
        call is cheap.
        """
        leaving = self._preemption.leaving()
        if self._directory is None and self._keeper is None:
            return
        position = Position(epoch, step)
        self._count(position)
        here = self._agreed(leaving, position)
        if _STOP in here:
            self._leave(self._directory, model, position, metrics, settle)
        if _COPY in here and self._directory is not None:
            self._save_middle(self._directory, model, position, metrics, settle)
        if _KEEP in here and self._keeper is not None:
            self._keep(self._keeper, model, position, metrics, settle)

    def epoch_ended(self, model: Any, epoch: int, metrics: Mapping[str, float], is_last: bool) -> None:
        """Must be called by all tasks when `epoch` epochs are done; with the `metrics` of the last one."""
        if self._directory is None or not (epoch % self._plan.every_epochs == 0 or is_last):
            return
        if is_last:
            self._last = epoch, metrics
        if not self._writes:
            StateCopy.unread(model, Position(epoch)).read()
            return
        if self._best is not None:
            self._best.check(metrics, self._reporter.notice)
        if is_last:
            self._make_room(lambda: False)
        elif not self._has_come_to_an_end():
            self._not_saved(f"{self._directory.root}: what was to be saved before is still being written")
            StateCopy.unread(model, Position(epoch)).read()  # as the other tasks do
            return
        self._save_epoch(self._directory, model, epoch, metrics)

    def _has_come_to_an_end(self) -> bool:
        """Waits for what is being written, for a while: the training goes on without an answer of the
        storage. Returns whether nothing is.
        """
        until = time.monotonic() + (0.0 if self._saved.problem else _END_SECONDS)
        settle = self._writer.wait if self._of_epoch else self._writer.abandon
        return settle(self._watch.alive, lambda: time.monotonic() > until)

    def _count(self, position: Position) -> None:
        """Counts the steps since the newest copy."""
        if self._at is None:
            self._since = time.monotonic()
        before, self._at = self._at or position, position
        same = position.epochs == before.epochs
        self._steps += position.steps - before.steps if same else position.steps

    def _agreed(self, leaving: bool, position: Position) -> set[str]:
        """Returns what all tasks do at this boundary."""
        if self._halts is None:
            return {_STOP} if leaving else self._due(position)
        here = self._halts.boundary()
        self._proposed -= here
        if _STOP in here:
            return here
        for what in sorted({_STOP} if leaving else self._due(position) - self._proposed - here):
            self._proposed.add(what)
            self._halts.propose(what)
        return here

    def _due(self, position: Position) -> set[str]:
        """Returns what the first task has all do next."""
        if not self._writes:
            return set()
        due = {_COPY} if self._is_due() else set()
        if self._keeper is not None:
            self._tell_copies(self._keeper.every)
            due |= {_KEEP} if self._keeper.is_due(position) else set()
        return due

    def _tell_copies(self, every: float) -> None:
        """Says how often a copy is kept in memory, where that has changed."""
        previous = self._saved.copied_every
        if bool(every) != bool(previous) or not previous / 2 <= every <= 2 * previous:
            self._saved = Checkpoint(*self._saved[:6], round(every, 1), *self._saved[7:])
            self._reporter.emit(self._saved)

    def _is_due(self) -> bool:
        if not self._writes or self._steps == 0 or self._writer.busy:
            return False
        plan, passed = self._plan, time.monotonic() - self._since
        if self._error is not None:
            return passed >= _AGAIN_SECONDS
        if plan.every_steps is not None and self._steps >= plan.every_steps:
            return True
        if plan.every_seconds is not None:
            return passed >= plan.every_seconds
        return plan.every_steps is None and passed >= self._interval()

    def _interval(self) -> float:
        return in_storage(self._costs, between_losses(self._life.seconds, self._life.losses))

    def _save_middle(
        self,
        directory: ModelDirectory,
        model: Any,
        position: Position,
        metrics: Metrics,
        settle: Callable[[], float] | None,
    ) -> None:
        idle = settle() if settle is not None else 0.0
        if self._writes and not self._writer.busy:
            self._save(model, position, metrics, directory.back_up, idle_seconds=idle)
        else:  # where the first task is busy, an epoch has ended since this was agreed
            StateCopy.unread(model, position, variables_of(metrics())).read()

    def _keep(
        self,
        keeper: Keeper,
        model: Any,
        position: Position,
        metrics: Metrics,
        settle: Callable[[], float] | None,
        *,
        is_last: bool = False,
    ) -> None:
        idle = settle() if settle is not None else 0.0
        beside = not is_last and self._has_room(model)
        keeper.keep(
            model,
            position,
            variables_of(metrics()),
            idle,
            further=self.beside.at(position),
            beside=beside,
            alive=self._watch.alive,
        )

    def _save_epoch(
        self, directory: ModelDirectory, model: Any, epoch: int, metrics: Mapping[str, float]
    ) -> None:
        def best() -> int | None:
            if self._best is None:
                return None
            self._best.offer(epoch, metrics)
            return self._best.epoch()

        def write(copy: StateCopy, go_on: Callable[[], bool]) -> None:
            directory.save(copy, go_on, best)

        self._save(model, Position(epoch), None, write)

    def _save(
        self,
        model: Any,
        position: Position,
        metrics: Metrics | None,
        write: Callable[[StateCopy, Callable[[], bool]], None],
        give_up: Callable[[], bool] | None = None,
        idle_seconds: float = 0.0,
    ) -> None:
        """Takes a copy, and begins to `write` it. With `give_up`, and where a copy has no room, the training
        waits until that is done. `idle_seconds` is that of `Keeper.keep`.
        """
        began = time.monotonic() - idle_seconds
        counted = None if metrics is None else variables_of(metrics())
        is_beside = give_up is None and self._has_room(model)
        directory = self._directory
        assert directory is not None  # noqa: S101 - for the type checker
        further = self.beside.at(position)
        copy = (StateCopy.of if is_beside else StateCopy.unread)(model, position, counted, further)
        self._since, self._steps = time.monotonic(), 0
        self._of_epoch = 0 if position.steps or metrics is not None else position.epochs
        taken_at, pause = time.time(), time.monotonic() - began

        def run(go_on: Callable[[], bool]) -> None:
            started, used = time.monotonic(), time.thread_time()
            write(copy, go_on)
            if not directory.files.settle(lambda: not go_on()):
                raise Abandoned(str(position))
            self._write_seconds = time.monotonic() - started
            beside = (time.thread_time() - used) / processors()
            cost = pause + (beside if is_beside else self._write_seconds)
            self._costs.add(cost, self._write_seconds)
            self._succeeded(position, taken_at)

        def go_on() -> bool:
            self._watch.alive()
            return give_up is None or not give_up()

        if is_beside:
            self._writer.begin(run)
        else:
            self._writer.run(run, go_on)

    def _has_room(self, model: Any) -> bool:
        """Returns whether all variables have room a second time, where they are."""
        sizes = by_device([*keras_models.without_tables(model.variables), *of_optimizer(model.optimizer)])
        share = max(sizes.values(), default=0)
        if self._ps_memory is None:
            room = memory.room()
        else:
            room = self._ps_memory - _SERVER_BYTES - share if self._ps_memory else None
        if room is None or share < room:
            return True
        if not self._has_notice_room:
            self._has_notice_room = True
            where = "this task" if self._ps_memory is None else "a parameter server"
            self._reporter.notice(
                f"each checkpoint stops the training while it is written: a copy of the variables takes "
                f"{share / 2**20:,.0f} MiB more in the memory of {where}, which has no room for them: raise "
                "the memory in its resources"
            )
        return False

    def _make_room(self, give_up: Callable[[], bool]) -> None:
        """Waits until nothing is being written: for an epoch's checkpoint until it is, unless `give_up()`;
        one of the middle is given up.
        """
        if self._of_epoch:
            self._writer.wait(self._watch.alive, give_up)
        self._writer.abandon(self._watch.alive, give_up)

    def _succeeded(self, position: Position, taken_at: float) -> None:
        self._error, self._done = None, position
        self._saved = Checkpoint(
            position.epochs,
            position.steps,
            taken_at,
            self._planned(),
            copied_every=self._saved.copied_every,
            write_seconds=round(self._write_seconds, 3),
        )
        self._watch.came_further()
        self._reporter.emit(self._saved)

    def _planned(self) -> float:
        """Returns the seconds between two checkpoints, 0 where steps decide."""
        if self._plan.every_seconds is not None:
            return float(self._plan.every_seconds)
        return 0.0 if self._plan.every_steps is not None else self._interval()

    def _failed(self, error: BaseException) -> None:
        """Runs in the thread that writes. The training goes on."""
        if is_lost_peer(error) and not isinstance(error, Failure):
            return  # the training gets that error, too
        failure = classify(error, "writing a checkpoint")
        self._since, self._error = time.monotonic(), failure
        self._not_saved(failure.message)

    def _not_saved(self, problem: str) -> None:
        """Says since when nothing is saved, and why."""
        if not self._saved.problem:
            self._saved = Checkpoint(*self._saved[:4], time.time(), problem, *self._saved[6:])
            self._reporter.emit(self._saved)

    def _leave(
        self,
        directory: ModelDirectory | None,
        model: Any,
        position: Position,
        metrics: Metrics,
        settle: Callable[[], float] | None,
    ) -> None:
        if settle is not None:
            settle()
        if directory is None:
            if self._keeper is not None and position > Position():
                self._keep_last(self._keeper, model, position, metrics)
        elif self._writes:
            self._save_last(directory, model, position, metrics)
        else:
            StateCopy.unread(model, position, variables_of(metrics())).read()
        if self._writes and not self._preemption.signalled:
            self._preemption.dismiss_servers()
        if self._halts is not None:
            self._watch.expect(Silence(_LAST_SECONDS, _UNSAVED, ExitCode.PREEMPTED))
            with contextlib.suppress(*ERRORS):
                self._halts.left()
        # Tasks without SIGTERM use this code too: that they leave is no failure of theirs, and must not be
        # counted.
        raise Left(ExitCode.PREEMPTED)

    def _keep_last(self, keeper: Keeper, model: Any, position: Position, metrics: Metrics) -> None:
        keeper.settle(self._watch.alive)
        self._keep(keeper, model, position, metrics, None, is_last=True)
        if self._writes and not keeper.every:
            self._reporter.notice(
                f"{position} is lost: this task has no copy of it in memory, and the run has no spec.modelDir"
            )

    def _save_last(self, directory: ModelDirectory, model: Any, position: Position, metrics: Metrics) -> None:
        preemption = self._preemption
        why = "SIGTERM" if preemption.signalled_at else "the workers change"
        if not preemption.signalled:
            why, preemption.signalled_at = "SIGTERM to another task", time.monotonic()
        self._make_room(self._is_late)
        if self._writer.busy or position == Position():
            StateCopy.unread(model, position, variables_of(metrics())).read()  # as the other tasks do
        else:
            self._save(model, position, metrics, directory.back_up, self._is_late)
        if position not in (self._done, Position()):
            reason = self._error.message if self._error is not None else f"{_LATE} {directory.root}"
            self._reporter.notice(
                f"{why}: the checkpoint of {position} is lost: {reason}; the next attempt resumes from the "
                "checkpoint before"
            )
            return
        with contextlib.suppress(Failure):
            directory.leave(self._life)
        self._reporter.notice(f"{why}: checkpoint saved at {position}, exiting")

    def _is_late(self) -> bool:
        """Returns whether too little of the grace period is left after SIGTERM to wait for a write."""
        signalled_at = self._preemption.signalled_at
        return signalled_at > 0 and time.monotonic() > signalled_at + self._grace_seconds

    def _finish(self, directory: ModelDirectory, model: Any) -> None:
        """Waits until the last epoch's checkpoint is written, and tries again where that failed."""
        self._writer.wait(self._watch.alive, self._is_late)
        if self._last is None:  # an earlier attempt has written it
            return
        epoch, metrics = self._last
        until, has_notice = time.monotonic() + self._patience, False
        while self._done != Position(epoch) and not self._is_late():
            if self._error is not None:
                if time.monotonic() > until:
                    raise self._error
                if not has_notice:
                    has_notice = True
                    self._reporter.notice(
                        "the training is over, and its last checkpoint is tried again for "
                        f"{self._patience:.0f} s: {self._error.message}"
                    )
                self._watch.alive()
                time.sleep(_LAST_AGAIN_SECONDS)
            self._save_epoch(directory, model, epoch, metrics)
            self._writer.wait(self._watch.alive, self._is_late)
        if self._done != Position(epoch):
            self._reporter.notice(f"SIGTERM: the last checkpoint is lost: {_LATE} {directory.root}")


def _best(task: Task, directory: ModelDirectory | None, plan: CheckpointPlan) -> Best | None:
    """Returns who is the best epoch; an evaluator decides that where there is one, and the metric is its."""
    if directory is None or plan.best is None:
        return None
    best = None
    if task.config.scores_program:
        run_id = task.config.run_id
        best = best_of_evaluator(directory.files, plan.best, plan.mode, run_id, offers=False)
    return best or Best(directory.files, OF_TRAINING, plan.best, plan.mode)
