"""Runs the script of `spec.program.script`, in a task that trains or scores."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worker.contract.environment import Env
from worker.failures import program_error
from worker.process.watch import Watch
from worker.script import lost_files, main_module, working_directory
from worker.task import Task
from worker.training.trainer import train

if TYPE_CHECKING:
    from worker.training.fitting import Fitting


def run(task: Task, watch: Watch) -> int:
    """Trains by the script. Returns the exit code; errors are reported before."""
    return train(task, watch, partial(_train, task))


def _train(task: Task, fitting: Fitting) -> None:
    from worker.script.fit import Fit

    trained = run_script(task, fitting, Fit)
    if not trained and (task.peers or fitting.strategy.num_replicas_in_sync > 1):
        fitting.notice(
            f"{task.config.script}: nothing was trained: the script has called no fit(), and what else it "
            "computes, each task has computed by itself"
        )


def run_script(task: Task, fitting: Fitting, kind: Callable[..., Any]) -> bool:
    """Runs the script as the main program. `kind` is what a call of `fit` does. Returns whether
    anything was trained.
    """
    from worker.script import early_settings
    from worker.script.door import Door

    path = _find(task)
    source = task.source or path.parent
    name = path.relative_to(source).as_posix()
    door = Door(fitting, name, [source], kind)
    folder = working_directory.enter(task.config.model_dir, task.source, fitting.writes)
    if fitting.writes and Env.LOCAL not in os.environ:
        lost_files.tell([folder.parent], fitting.notice)
    main_module.lead_module_path(str(path.parent))
    fitting.idle()
    with door.opened(), early_settings.passed_over(fitting.notice):
        try:
            main_module.execute(str(path), task.config.args)
        except SystemExit as error:
            raise main_module.of_exit(error, name, [source])[1] from None
    main_module.leave_python()
    working_directory.leave(folder, task.source)
    return bool(door.fits or door.steps)


def _find(task: Task) -> Path:
    path = task.script
    if path is None or not path.is_file():
        raise program_error(f"spec.program.script: there is no {task.config.script} in the program's source")
    return path
