"""Scripts that build their strategy themselves: the runtime runs them, or they call the runtime.

The module imports TensorFlow only to release other tasks; until then the script alone uses it.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from worker.collective.leaving import leave_last
from worker.contract.environment import Env
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Done
from worker.failures import Failure, classify, program_error
from worker.peers.start_barrier import gather
from worker.process.activity import Activity
from worker.process.watch import UNWATCHED_SECONDS, Silence, Watch, stalled
from worker.reporting import Reporter, failed
from worker.script import main_module
from worker.task import Task, from_environment
from worker.tf_compat import connections
from worker.tf_compat.checkpoint_io import save_here

USAGE = "python -m worker -- SCRIPT [ARGUMENTS], or -- -m MODULE [ARGUMENTS]"
_LEAVING_SECONDS = 60.0
"""Limit for the functions that a failed script has registered with atexit."""
_KEPT: list[object] = []
"""Objects that must live as long as the process: to delete a remote function sends a message to each task."""


@dataclass
class _Run:
    """The run of this process, as its script sees it."""

    task: Task
    watch: Watch
    reporter: Reporter
    doing: str
    supervised: bool
    released: bool = field(default=False)
    watched: bool = field(default=False)
    spoke: float = field(default=0.0)

    def release(self, outcome: str, exit_code: int) -> None:
        if self.released or not self.task.config.is_coordinated or self.task.role != "chief":
            return
        from worker.parameter_server.release import release as release_tasks

        connected = _is_connected()
        if not connected:
            # The run ends before its training began, so the servers may not be up yet.
            activity = _activity(self.task, self.watch, self.reporter)
            with contextlib.suppress(Failure):
                gather(self.task, activity, self.reporter, self.watch.alive)
        release_tasks(self.task, outcome, self.reporter, self.watch, exit_code, connected)
        self.released = True
        self.watch.expect(self.silence())
        if not self.supervised:
            connections.keep_functions()

    def silence(self) -> Silence:
        """Returns how long the script may be silent."""
        if not self.watched:
            return stalled(self.doing, UNWATCHED_SECONDS)
        return stalled(f"{self.doing} (worker.alive() was not called)", self.task.config.stall_seconds)

    def alive(self) -> None:
        first, self.watched = not self.watched, True
        if self.supervised:
            if first:
                self.watch.expect(self.silence())
                self.watch.came_further()
            self.watch.alive()
        elif first or time.monotonic() - self.spoke >= 1.0:
            # No other process watches this one. It ends with exit code 1, after which the task is retried.
            faulthandler.dump_traceback_later(self.task.config.stall_seconds, exit=True)
            self.spoke = time.monotonic()


_current: _Run | None = None


def release() -> None:
    """See `worker.release`."""
    run = _here()
    if run is None:
        print("worker.release(): no run of the launcher, nobody to release", file=sys.stderr)
    else:
        run.release("done", ExitCode.DONE)


def alive() -> None:
    """See `worker.alive`."""
    run = _here()
    if run is not None:
        run.alive()


def _here() -> _Run | None:
    global _current
    if _current is None and os.environ.get(Env.CONFIG):
        try:
            task = from_environment()
        except Failure as failure:
            raise RuntimeError(failure.message) from failure
        _current = _Run(task, Watch(), Reporter(task.name), f"running {sys.argv[0]}", supervised=False)
    return _current


def parse(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments after `python -m worker --`; an empty list without arguments. Raises Failure."""
    if not arguments:
        return []
    if arguments[0] != "--" or not arguments[1:] or list(arguments[1:]) == ["-m"]:
        raise program_error(
            f"python -m worker got {' '.join(arguments)!r}, and takes no arguments or a script: {USAGE}"
        )
    return list(arguments[1:])


def run(task: Task, watch: Watch, command: Sequence[str]) -> int:
    """Runs `command`, a result of `parse`, as this process's main program, once the other tasks answer.

    Returns the exit code; errors are reported before. When the script is over, every worker and ps of a
    ParameterServer run is released, except after a failure that a retry may fix.
    """
    return _Script(task, watch, list(command)).run()


class _Script:
    def __init__(self, task: Task, watch: Watch, command: list[str]) -> None:
        global _current
        self._task = task
        self._watch = watch
        self._reporter = Reporter(task.name, watch.tell)
        self._activity = _activity(task, watch, self._reporter)
        self._is_module = command[0] == "-m"
        self._name, *self._arguments = command[1:] if self._is_module else command
        self._roots: list[Path] = [task.source] if task.source else []
        doing = f"running {self._name}"
        _current = self._run = _Run(task, watch, self._reporter, doing, supervised=True)

    def run(self) -> int:
        try:
            path = self._find()
            gather(self._task, self._activity, self._reporter, self._watch.alive)
            self._activity.enter(self._run.doing)
            if self._task.config.is_coordinated:
                save_here()
            self._watch.expect(self._run.silence())
            _KEPT.append(main_module.execute(path, self._arguments, is_module=self._is_module))
            self._check_took_part()
        except KeyboardInterrupt:
            return ExitCode.PREEMPTED
        except BaseException as error:  # noqa: BLE001 - whatever a script raises must be told
            _KEPT.append(error)
            return self._fail(error)
        self._watch.expect(stalled("leaving", UNWATCHED_SECONDS))
        main_module.leave_python()
        self._run.release("done", ExitCode.DONE)
        leave_last(self._task, self._activity)
        self._reporter.emit(Done())
        return ExitCode.DONE

    def _find(self) -> str:
        """Returns the script's absolute path, or the module's name. Raises Failure where it does
        not exist.
        """
        if self._is_module:
            main_module.lead_module_path(str(Path.cwd()))
            try:
                spec = importlib.util.find_spec(self._name)
            except (ModuleNotFoundError, ValueError):
                spec = None
            if spec is None:
                raise program_error(f"there is no module {self._name} to run; {_contents(Path.cwd())}")
            if spec.origin and not self._roots:
                self._roots = [_root_of(Path(spec.origin))]
            return self._name
        path = Path(self._name).absolute()
        if not path.exists():
            raise program_error(f"there is no script {path} to run; {_contents(path.parent)}")
        main_module.lead_module_path(str(path.parent))
        self._roots.append(_root_of(path))
        return str(path)

    def _check_took_part(self) -> None:
        """Raises Failure where each task of a collective has trained alone."""
        task = self._task
        if task.config.is_collective and task.peers and not _is_in_collective():
            raise program_error(
                f"{self._name} ended without building a tf.distribute.MultiWorkerMirroredStrategy, so each "
                "task trained alone; build it in the script, or have one task with another spec.strategy"
            )

    def _fail(self, error: BaseException) -> int:
        code, failure = self._verdict(error)
        if not failure.in_place:
            self._watch.stay_down()
        record = failed(failure, code)
        self._watch.expect(Silence(_LEAVING_SECONDS, record, code))
        atexit._run_exitfuncs()
        self._reporter.emit(record)
        if failure.exit_code != ExitCode.RETRYABLE:  # otherwise the other tasks stay, for the retry
            try:
                self._run.release("failed", code)
            except Exception as reason:  # noqa: BLE001 - the run has failed already, with its own reason
                why = classify(reason, "releasing the other tasks").message
                self._reporter.notice(f"the other tasks will leave by themselves: {why}")
        return code

    def _verdict(self, error: BaseException) -> tuple[int, Failure]:
        """Returns the exit code, and the failure that it stands for."""
        if not isinstance(error, SystemExit):
            failure = classify(error, self._run.doing, self._roots)
            return failure.exit_code, failure
        return main_module.of_exit(error, self._name, self._roots)


def _activity(task: Task, watch: Watch, reporter: Reporter) -> Activity:
    return Activity(watch, reporter, task.config.stall_seconds, task.config.starting_deadline_seconds)


def _root_of(path: Path) -> Path:
    """Returns the path whose frames are the user's: the script's folder, or only the script if libraries are
    below the folder.
    """
    folder = path.resolve().parent
    libraries = [Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()]
    return path.resolve() if any(folder == each or folder in each.parents for each in libraries) else folder


def _contents(folder: Path) -> str:
    try:
        names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return f"there is no folder {folder}"
    return f"{folder} has {', '.join(names[:10]) or 'no files'}"


def _is_in_collective() -> bool:
    return "tensorflow" in sys.modules and connections.is_in_collective()


def _is_connected() -> bool:
    """Returns whether the script has connected this process to the cluster."""
    return "tensorflow" in sys.modules and connections.is_connected()
