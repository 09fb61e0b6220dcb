"""The task that trains: the chief of a ParameterServer run, every task of a collective one, or the only task.

It runs in the child process of `worker/supervisor/supervisor.py`.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from worker.buckets import prefetch
from worker.buckets.bucket import Bucket, BucketError, is_bucket
from worker.collective.leaving import leave_together
from worker.collective.peer_connections import watch_peers
from worker.contract.environment import Env
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Doing, Done, Exported
from worker.contract.strategies import Loss, loss
from worker.failures import (
    Failure,
    Left,
    advice_of_shares,
    advice_of_workers,
    classify,
    is_op_error,
    program_error,
    sentence,
    writing,
)
from worker.imports import import_tensorflow
from worker.parameters import CheckpointPlan, TrainingParameters
from worker.peers import probes
from worker.peers.start_barrier import unanswered, wait_for_peers
from worker.process import lease
from worker.process.activity import Activity
from worker.process.step_times import StepTimes
from worker.process.watch import UNWATCHED_SECONDS, Silence, Watch, overtaken, stalled
from worker.program import LoadedProgram, load, user_roots
from worker.reporting import Reporter, failed
from worker.task import Task
from worker.tf_compat import seeds
from worker.tf_compat.checkpoint_io import save_here
from worker.training.early_look import EarlyLook

if TYPE_CHECKING:
    from worker.training.fitting import FitCall, Fitting

_FAILED_STEP_SECONDS = 20.0
_LEASE_SECONDS = 5.0
_LAST_UPLOAD_SECONDS = 120.0
"""The longest wait for an upload when the task has failed."""
_KEPT: list[object] = []
"""Objects that must live as long as the process: to delete a remote function sends a message to each task,
and logs a line for each that has left.
"""


def train(task: Task, watch: Watch, script: Callable[[Fitting], None] | None = None) -> int:
    """Trains, exports and releases the other tasks. Returns the exit code; errors are reported before.

    A `script` takes the program's place: it is called when this task is connected to the others, and trains
    by what it is given.
    """
    return _Training(task, watch, script).run()


_Work = Callable[[LoadedProgram, Any], None]
"""Trains, evaluates or predicts with a program and its parameters."""


class _Once:
    """What `begin` returns or raises, wherever it was called first: by the program while it is imported, or
    after that.
    """

    def __init__(self, begin: Callable[[], _Work | None], activity: Activity) -> None:
        self._begin = begin
        self._activity = activity
        self._attempted = False
        self._error: BaseException | None = None
        self._work: _Work | None = None

    def attempt(self) -> None:
        """Calls `begin`. Then the task goes on with what it was doing."""
        self._attempted = True
        doing = self._activity.doing
        try:
            self._work = self._begin()
        except BaseException as error:
            self._error = error  # the program might catch it
            raise
        self._activity.enter(doing)

    def result(self) -> _Work | None:
        """Returns what `begin` returned, or raises what it raised."""
        if not self._attempted:
            self.attempt()
        if self._error is not None:
            raise self._error
        return self._work


class _Training:
    def __init__(self, task: Task, watch: Watch, script: Callable[[Fitting], None] | None = None) -> None:
        self._task = task
        self._script = script
        self._config = task.config
        self._watch = watch
        self._reporter = Reporter(task.name, watch.tell)
        starting_seconds = task.config.starting_deadline_seconds
        self._activity = Activity(watch, self._reporter, task.config.stall_seconds, starting_seconds)
        self._program: LoadedProgram | None = None
        self._directory: Any = None
        self._copies: Any = None
        self._call: FitCall | None = None
        self._neighbours: Any = None
        self._held: lease.Lease | None = None
        """A lease that this process renews and gives back itself."""
        self._connected = False
        self._absent: dict[str, str] = {}
        """The workers that the training begins without, and why."""
        self._membership: Any = None
        self._export_version: int | None = None
        """Set once the model directory is claimed for this run."""
        self._life: Any = None
        self._replicas = 1
        self._look = EarlyLook()
        self._plan = CheckpointPlan.read(task.config.checkpoints, task.config.parameters)

    def run(self) -> int:
        code = self._outcome()
        if self._held is not None and code != ExitCode.RETRYABLE and self._held.stop(_LEASE_SECONDS):
            self._held.give_back()
        return code

    def _outcome(self) -> int:
        service = self._config.data_service
        alone = service is not None and self._task.address is None
        try:
            # A task that trains alone has no server, by whose port the data service sees whether it is there.
            with probes.listening(service.primary if service is not None and alone else None):
                self._train()
        except Left as left:
            _KEPT.append(left)
            return left.exit_code
        except BaseException as error:  # noqa: BLE001 - whatever a program raises must be told
            if self._look.is_here:
                os._exit(ExitCode.DONE)
            _KEPT.append(error)
            return self._fail(self._classify(error))
        return ExitCode.DONE

    def _classify(self, error: BaseException) -> Failure:
        datasets = self._program.datasets if self._program else []
        alone = not self._task.peers
        doing = self._activity.doing
        failure = classify(error, doing, self._roots, datasets, alone)
        if failure.exit_code == ExitCode.PROGRAM_ERROR and (
            advice := advice_of_shares(error, self._replicas)
        ):
            return program_error(f"{failure.message}; {advice}", failure.frames)
        if failure.exit_code != ExitCode.PROGRAM_ERROR or not self._is_coordinating or not is_op_error(error):
            return failure
        from worker.parameter_server import lost_ps

        # What a lost ps breaks off may fail in any way: where a dataset is read, with "End of sequence".
        lost = lost_ps.lost(self._task)
        if not lost:
            advice = advice_of_workers(error)
            return program_error(f"{failure.message}; {advice}", failure.frames) if advice else failure
        lost_tasks = ", ".join(f"{name} ({reason})" for name, reason in lost.items())
        return Failure(f"a task was lost while {doing}: {lost_tasks}; {sentence(error)}", ExitCode.RETRYABLE)

    @property
    def _is_coordinating(self) -> bool:
        return self._connected and self._config.is_coordinated

    @property
    def _roots(self) -> list[Any]:
        return self._program.roots if self._program else user_roots(self._task.source)

    def _train(self) -> None:
        task, config, activity = self._task, self._config, self._activity
        activity.enter("importing TensorFlow")
        import_tensorflow(keras=True)
        from worker import devices
        from worker.tf_compat.first_operation import before_first_operation
        from worker.training.modes import check_mode

        devices.check(task)
        if config.verification is not None:
            seeds.seed_all()  # of what the program draws when it is imported, too
        if config.is_coordinated:
            save_here()  # for what the program's own callbacks save
        devices.prepare(task)
        parameters = TrainingParameters.read(config.parameters)
        prefetch.fetch(
            config.parameters,
            activity.enter,
            patience=float(config.stall_seconds),
            notice=self._reporter.notice,
            alive=self._watch.alive,
        )
        if self._script is not None:
            self._run_script(self._script, parameters)
            return
        beginnings = {"Evaluate": self._begin_evaluation, "Predict": self._begin_prediction}
        begun = _Once(beginnings.get(config.mode, self._begin_training), activity)
        activity.enter(f"importing {config.entrypoint}")
        with before_first_operation(begun.attempt):
            program = load(config.entrypoint, task.source, prefetch.with_local_data(config.parameters))
        self._program = program
        for notice in program.notices:
            self._reporter.notice(notice)
        check_mode(program, config)
        work = begun.result()
        if work is not None:
            work(program, parameters)
        self._finish()

    def _run_script(self, script: Callable[[Fitting], None], parameters: TrainingParameters) -> None:
        from worker.training.fitting import Fitting

        strategy = self._claim_and_connect()
        if strategy is not None:
            fitting = Fitting(
                strategy=strategy,
                directory=self._directory,
                writes=self._task.is_primary,
                parameters=parameters,
                place=lambda name: self._open(self._directory.path(name)) if self._directory else None,
                fit=partial(self._fit, strategy),
                loop=lambda program, given: self._loop(program, given, strategy, None),
                idle=self._idle,
                notice=self._notice,
            )
            script(fitting)
            if self._directory is not None and self._task.is_primary:
                self._write_state("done", "trained")
        self._finish()

    def _idle(self) -> None:
        doing = f"running {self._config.script}"
        self._activity.enter(doing)
        self._watch.expect(stalled(doing, UNWATCHED_SECONDS))

    def _notice(self, message: str) -> None:
        if self._task.is_primary:
            self._reporter.notice(message)

    def _begin_training(self) -> _Work | None:
        """Returns the training, None where the run is done already."""
        if self._may_look() and self._look.begin(self._watch):
            return self._look.tell
        try:
            strategy = self._claim_and_connect()
        finally:
            self._look.end()
        return None if strategy is None else partial(self._train_by, strategy)

    def _may_look(self) -> bool:
        """Returns whether this task can say while it waits for others that stepsPerEpoch is missing."""
        task, given = self._task, self._config.parameters.get("stepsPerEpoch")
        waits = bool(task.peers) and task.generation is None
        return task.is_primary and waits and given is None

    def _claim_and_connect(self) -> Any:
        """Claims the model directory, waits for the other tasks and connects to them. Returns the strategy,
        None where the run is done already.
        """
        from worker.checkpoints import model_directory
        from worker.checkpoints.position import Position

        task, config = self._task, self._config
        again = False
        if config.model_dir:
            self._activity.enter("claiming the model directory")
            directory = self._open(config.model_dir)
            if task.is_primary:
                self._claim(config.model_dir, directory.files.clear_unfinished)
            # Not earlier: until the claim it may be another run's.
            self._directory = directory
        if self._directory is not None and task.is_primary:
            beginning = model_directory.begin(self._directory, config.run_id, self._reporter.notice)
            if beginning.finished:
                self._reporter.notice("this run is done already: its model directory says so")
                return None
            again = not beginning.previous_run
            self._export_version, self._life = beginning.export, beginning.life
            position = self._directory.position()
            if beginning.previous_run and position > Position():
                self._reporter.notice(
                    f"{config.model_dir} holds an earlier run that did not finish: resuming from {position}"
                )
        elif self._directory is not None and model_directory.is_done(self._directory, config.run_id):
            # The first task is done already and will not train: the collective cannot form.
            return None
        self._wait(config.starting_deadline_seconds, again)
        return self._connect(task)

    def _train_by(self, strategy: Any, program: LoadedProgram, parameters: Any) -> None:
        self._fit(strategy, program, parameters, self._directory)
        if self._directory is not None and self._task.is_primary:
            if self._config.verification is None:
                self._export(program)
            self._write_state("done", "trained")

    def _fit(
        self,
        strategy: Any,
        program: LoadedProgram,
        parameters: Any,
        directory: Any,
        call: FitCall | None = None,
        ended: Callable[[int | None], None] = lambda _: None,
    ) -> None:
        """Trains to the last epoch. Then calls `ended`, before SIGTERM can end the task again, with
        `Trained.stopped_at`. `call` is a script's.
        """
        from worker.copies.keeper import Keeper
        from worker.copies.neighbours import Neighbours
        from worker.training import loop as training_loop
        from worker.training.saver import Saver
        from worker.training.training_profile import Profiler

        # The History of a script's fit() has the validation's results, which callbacks may wait for.
        validates = self._script is not None or self._config.replicas.get("evaluator", 0) == 0
        task, keeper = self._task, None
        # Without a modelDir a script has no record of its calls: it begins again from its top.
        self._call = call
        self._copies = None if call is not None and directory is None else self._open_copies()
        if self._copies is not None:
            further, notice = self._watch.came_further, self._reporter.notice
            self._neighbours = Neighbours.of(task, notice) if self._config.is_coordinated else None
            keeper = Keeper(self._copies, notice, further, self._neighbours)
        saver = Saver(task, directory, self._plan, self._reporter, self._watch, self._life, keeper)
        loop = self._loop(program, parameters, strategy, directory, saver, validates=validates)
        if self._directory is not None:
            profiler = Profiler(task, self._directory.files, self._reporter, self._watch)
            hooks = replace(loop.hooks, taken=profiler.taken, trained=profiler.trained)
            loop = replace(loop, hooks=hooks)
        if self._config.verification is not None:
            from worker.training.verification import Recorder

            loop = Recorder(loop, self._config.verification).loop
        saver.begin()
        model, stopped_at = training_loop.train(loop)
        _KEPT.append(model)
        saver.end(model, partial(ended, stopped_at))

    def _loop(
        self,
        program: LoadedProgram,
        parameters: Any,
        strategy: Any,
        directory: Any,
        saver: Any = None,
        *,
        validates: bool = True,
    ) -> Any:
        """Returns the loop, once the strategy exists. `saver` is None where nothing is trained."""
        from worker.context import Hooks, Loop

        task, config, times = self._task, self._config, StepTimes(self._watch.spend)
        if config.is_coordinated and task.elastic is None:
            workers = task.cluster.get("worker", {})
            self._watch.attend({task.pod("worker", index): workers[index] for index in workers})
        self._replicas = strategy.num_replicas_in_sync
        return Loop(
            program=program,
            parameters=parameters.with_replicas(strategy.num_replicas_in_sync),
            strategy=strategy,
            directory=directory,
            newest=partial(self._newest, directory),
            writes=task.is_primary,
            count_workers=self._taking_steps,
            validates=validates,
            hooks=Hooks(
                self._reporter,
                enter=self._activity.enter,
                coordinates=self._keep_exact,
                alive=self._watch.alive,
                stepped=self._activity.stepped,
                saved=self._watch.came_further,
                failed=self._step_failed,
                kept=_KEPT,
                times=times,
                **({} if saver is None else _saving(saver, times)),
            ),
            **({} if saver is None else {"beside": saver.beside}),
            strategy_options=config.strategy_options,
            evaluation=config.evaluation,
            address=task.address,
            data_service=config.data_service,
            elastic=task.generation.workers if task.generation is not None else None,
            evaluator_memory=config.evaluator_memory,
        )

    def _newest(self, directory: Any) -> Any:
        """Returns the directory with the newest checkpoint or copy in memory. Every task of a collective must
        call it.
        """
        if self._copies is None:
            return directory
        from worker.checkpoints.position import Position
        from worker.collective.kv_store import numbered
        from worker.copies.agreement import agree

        stored = directory.position() if directory is not None else Position()
        alive, notice = self._watch.alive, self._reporter.notice
        newest = agree(
            self._task,
            self._copies,
            stored,
            notice,
            alive,
            self._neighbours,
            most_epochs=math.inf if self._call is None else self._call.recorded_epochs,
            key=numbered("copies"),
        )
        return newest or directory

    def _begin_evaluation(self) -> _Work:
        """Connects as for a training, to evaluate the model of an earlier run. Like a prediction it neither
        claims the model directory nor writes a run's state: that training may be done, or still run.
        """
        from worker.evaluation import standalone, trained_model

        directory, checkpoint = self._trained(), self._config.checkpoint
        trained_model.choose(directory, checkpoint)
        self._wait(self._config.starting_deadline_seconds)
        strategy = self._connect(self._task)

        def evaluate(program: LoadedProgram, parameters: Any) -> None:
            loop = self._loop(program, parameters, strategy, self._directory)
            _KEPT.append(standalone.evaluate(loop, directory, checkpoint))

        return evaluate

    def _begin_prediction(self) -> _Work | None:
        """Connects, to predict with the model of an earlier run. Returns None where that is done already."""
        from worker.checkpoints.files import open_files
        from worker.evaluation import trained_model
        from worker.prediction import predict
        from worker.prediction.files import DONE, PredictionFiles

        task, config, directory = self._task, self._config, self._trained()
        root = directory.path("predictions", config.run)
        files = PredictionFiles(root, task.name, open_files(root, **self._outages()))
        state = files.read_state()
        again = state is not None and state.run_id == config.run_id != ""
        if state is not None and again and state.phase == DONE:
            self._reporter.notice("this run is done already: its predictions say so")
            predict.report_done(self._reporter, files, state)
            return None
        if not again:
            trained_model.choose(directory, config.checkpoint)  # checked before anything is made
        if task.is_primary:
            self._activity.enter("claiming the predictions")
            self._claim(files.root)
        if config.is_collective:
            # The tasks need not agree on anything, so that the loss of one holds up no other.
            strategy = self._connect(replace(task, config=replace(config, strategy="Mirrored")))
        else:
            self._wait(config.starting_deadline_seconds, again)
            strategy = self._connect(self._task)

        def apply(program: LoadedProgram, parameters: Any) -> None:
            loop = self._loop(program, parameters, strategy, self._directory)
            share = predict.Share.of(task)
            if task.is_primary:
                size = share.batch_size(loop.parameters)
                begun = predict.begin(task, directory, files, size, self._reporter.notice)
            else:
                self._activity.enter("waiting for the first task to begin")
                begun = predict.await_begun(task, files, self._watch.alive)
            predict.predict(loop, directory, files, begun, share)

        return apply

    def _trained(self) -> Any:
        """Returns the model directory of an earlier run. Raises Failure where the file names none."""
        if not self._config.model_dir:
            raise program_error(f"spec.modelDir: mode: {self._config.mode} needs it, to find the checkpoints")
        return self._open(self._config.model_dir)

    def _connect(self, task: Task) -> Any:
        """Builds the strategy."""
        from worker import devices, strategies

        self._activity.enter("connecting to the cluster")
        if task.config.is_coordinated:
            from worker.parameter_server.membership import Membership

            workers = task.cluster.get("worker", {})
            absent = [index for index in workers if task.pod("worker", index) in self._absent]
            build = partial(strategies.build, task)
            self._membership = Membership(task, absent, build, self._reporter, self._step_failed)
            strategy = self._membership.strategy
        else:
            strategy = strategies.build(task, probes.located)
        devices.report(self._task, self._reporter, strategy, self._taking_steps())
        self._connected = task.config.strategy == self._config.strategy
        if self._connected and task.config.is_collective:
            watch_peers(task)
        return strategy

    def _open(self, root: str) -> Any:
        """Returns the model directory. Nothing is read or written yet."""
        from worker.checkpoints.files import open_files
        from worker.checkpoints.model_directory import FOLDERS, ModelDirectory

        trains = self._config.mode == "Train" and self._task.is_primary
        files = open_files(root, FOLDERS if trains else (), **self._outages())
        return ModelDirectory(root, self._io_device(), files, self._plan.keep)

    def _open_copies(self) -> Any:
        """Returns the copies in this task's memory, None where none are kept."""
        from worker.copies.memory import MemoryCopies

        folder = os.environ.get(Env.COPIES_DIR)
        fit = None if self._call is None else self._call.number
        return MemoryCopies(folder, self._io_device(), self._reporter.notice, fit) if folder else None

    def _outages(self) -> Any:
        """Returns what is done while a bucket does not answer."""
        return {
            "patience": self._config.stall_seconds,
            "notice": self._reporter.notice,
            "alive": self._alive,
        }

    def _alive(self) -> None:
        """Gives a sign of life: that a thread beside the training waits says nothing of it."""
        if threading.current_thread() is threading.main_thread():
            self._watch.alive()

    def _claim(self, directory: str, make_room: Callable[[], None] = lambda: None) -> None:
        """Claims the model directory: see `Lease.claim`. Raises Failure where another run has it."""
        config = self._config
        holder = lease.new_holder(config.run, config.run_id, config.chief_address, self._task.name)
        if is_bucket(directory):
            try:
                files = lease.BucketFiles(Bucket(directory, **self._outages()))
                lease.Lease(directory, holder, files).claim(self._watch.alive)
            except BucketError as error:
                raise error.as_failure() from None
        held = lease.Lease(directory, holder)
        if not is_bucket(directory):
            with writing(directory):
                held.claim(self._watch.alive, make_room)
        if lease.is_remote(directory):
            self._held = held
            held.keep(lambda other: self._watch.expect(overtaken(other)))
        else:
            self._watch.hold(held)

    def _io_device(self) -> str | None:
        """Returns the device that reads and writes checkpoints: this task's. A ps does not have the model
        directory.
        """
        if not self._config.is_coordinated:
            return None
        return f"/job:{self._task.role}/replica:0/task:{self._task.index}/device:CPU:0"

    def _wait(self, deadline: float, again: bool = False) -> None:
        """Waits until every peer answers; in an elastic run, until enough workers do. Raises Failure
        (RETRYABLE) that names those that do not.

        A restarted chief goes on without workers that are gone, hung or cut off.
        """
        if self._config.is_coordinated and again:
            deadline = min(deadline, self._config.stall_seconds)
        try:
            self._absent = wait_for_peers(self._task, deadline, self._activity, self._reporter, self._waiting)
        except probes.Unanswered as error:
            if not (again and self._spares(error.missing)):
                raise unanswered(self._task, error) from error
            self._absent = error.missing
            self._reporter.notice(
                f"continuing without {probes.described(error.missing)}: used when it answers"
            )

    def _waiting(self) -> None:
        self._watch.alive()
        self._look.check()

    def _spares(self, missing: Collection[str]) -> bool:
        """Returns whether the run can go on without `missing`: the others of their role do their work."""
        task = self._task
        for role, tasks in task.cluster.items():
            if loss(task.config.strategy, role) is Loss.SPARED:
                return set(missing) < {task.pod(role, index) for index in tasks}
        return False

    def _step_failed(self, error: BaseException) -> None:
        """Runs in the progress thread. A worker that cannot be cancelled must not hide the error."""
        failure = self._classify(error)
        self._watch.expect(Silence(_FAILED_STEP_SECONDS, failed(failure), failure.exit_code))

    def _keep_exact(self) -> None:
        """Does so where that costs the seconds since the newest copy, and not those since a checkpoint."""
        if self._membership is not None and self._copies is not None:
            self._membership.keep_exact()

    def _export(self, program: LoadedProgram) -> None:
        """Exports an ordinary model, loaded from the last checkpoint.

        The variables of the trained model may be on parameter servers, which would write to their own disks.
        """
        self._activity.enter("exporting the model")
        self._reporter.emit(Doing("exporting the model"))
        model, large = _model_to_export(program)
        if not program.can_export(model):
            self._reporter.notice(
                f"{program.entrypoint}: nothing is exported: {type(model).__name__} has no call(), and no "
                "part that knows its inputs: give the program an export(model, path)"
            )
            return
        with self._directory.loaded_for_export(model, self._directory.epochs()[-1], large):
            self._write_export(program, model)

    def _write_export(self, program: LoadedProgram, model: Any) -> None:
        from worker.tf_compat import keras_models

        guard = contextlib.nullcontext() if program.has("export") else writing(self._directory.root)
        try:
            with guard:
                path = self._directory.write_export(self._export_version or 1, partial(program.export, model))
        except (TypeError, ValueError) as error:
            if program.has("export") or not keras_models.has_own(model, "train_step"):
                raise
            # Its own steps call it with something else than Keras does.
            self._reporter.notice(
                f"{program.entrypoint}: nothing is exported: Keras cannot write {type(model).__name__} "
                f"({sentence(error)}); give the program an export(model, path)"
            )
            return
        self._reporter.emit(Exported(path))

    def _upload_last(self) -> None:
        """Waits for the upload of what was saved before a failure."""
        until = time.monotonic() + _LAST_UPLOAD_SECONDS
        if self._directory is not None and self._task.is_primary:
            with contextlib.suppress(Failure):
                self._directory.files.settle(lambda: time.monotonic() > until)

    def _write_state(self, phase: str, outcome: str) -> None:
        from worker.checkpoints.model_directory import RunState

        run_id = self._config.run_id
        self._directory.write_state(RunState(run_id, phase, outcome, self._export_version or 1))

    def _release_data_service(self, outcome: str) -> None:
        """Tells dispatcher and data workers to leave. The first task does so at the run's end, and any task
        whose failure is the run's.
        """
        service = self._config.data_service
        if service is None or (outcome == "done" and not self._task.is_primary):
            return
        import_tensorflow(keras=False)
        from worker.input import data_servers

        self._activity.enter("releasing the data service")
        if not data_servers.release(service, outcome):
            self._reporter.notice("the dispatcher does not answer: the data service will leave by itself")

    def _finish(self) -> None:
        self._release("done", ExitCode.DONE)
        if self._connected:
            leave_together(self._task, self._activity, self._watch.alive)
        self._reporter.emit(Done())

    def _fail(self, failure: Failure) -> int:
        if not failure.in_place:
            self._watch.stay_down()
        self._reporter.failed(failure)
        if failure.exit_code == ExitCode.RETRYABLE:
            self._upload_last()
            return failure.exit_code  # the other tasks stay, for the retry
        if self._export_version is not None:
            with contextlib.suppress(Failure):
                self._write_state("failed", failure.message)
        try:
            self._release("failed", failure.exit_code)
        except Exception as error:  # noqa: BLE001 - the run has failed already, with its own reason
            reason = classify(error, "releasing the other tasks").message
            self._reporter.notice(f"the other tasks will leave by themselves: {reason}")
        return failure.exit_code

    def _release(self, outcome: str, exit_code: int) -> None:
        self._release_data_service(outcome)
        if not self._config.is_coordinated:
            return
        self._watch.attend({})  # the workers leave now, and are not lost
        from worker.parameter_server.release import RETURN_SECONDS, release

        if not self._connected:
            # The run ends before its training began, so the servers may not be up yet.
            with contextlib.suppress(Failure):
                self._wait(self._config.starting_deadline_seconds)
        task, lost = self._task, list(self._absent)
        if self._membership is not None:
            there = self._membership.close(RETURN_SECONDS)
            lost = [task.pod("worker", index) for index in task.cluster["worker"] if index not in there]
        lost = lost if task.elastic is not None else []
        release(task, outcome, self._reporter, self._watch, exit_code, self._connected, lost)

    def _taking_steps(self) -> int:
        """Returns how many tasks take steps. ParameterServer's chief only coordinates."""
        if self._membership is not None:
            return int(self._membership.count())
        cluster = self._task.cluster
        return max(1, len(cluster.get("worker", {})) + len(cluster.get("chief", {})))


def _model_to_export(program: LoadedProgram) -> tuple[Any, list[Any]]:
    """Returns an ordinary model, and those of its variables that have no values: see `exports_in_parts`."""
    from worker.checkpoints.exports_in_parts import LARGE_BYTES
    from worker.steps.model_build import build
    from worker.tf_compat.saved_models import variables_without_values

    if not program.has("export"):
        # A model() that reads its own variables fails here, and is called again below.
        with contextlib.suppress(Exception), variables_without_values(LARGE_BYTES) as large:
            model = program.model()
            build(model, program.element, program.entrypoint, computes=False)
            return model, large
    model = program.model()
    build(model, program.element, program.entrypoint)
    return model, []


def _saving(saver: Any, times: StepTimes) -> Mapping[str, Callable[..., None]]:
    """Returns the hooks by which the training is saved."""
    return {"boundary": times.saving()(saver.boundary), "epoch_ended": times.saving()(saver.epoch_ended)}
