"""What a program's own calls of MLflow and W&B log: one run for all tasks, over restarts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from worker.contract.version import VERSION
from worker.reporting import Reporter
from worker.task import Task
from worker.tracking.mlflow import Server, TrackerError
from worker.tracking.tracker import Tracker


def prepare(task: Task, reporter: Reporter) -> tuple[Mapping[str, str], Tracker | None]:
    """Returns the environment variables by which the program's own calls log once, and what logs the run's
    records, None where the file or this task has none.

    The first task's calls join MLflow's run; those of the other tasks go nowhere. It waits for the tracker's
    server, for 15 s where that does not answer.
    """
    given = task.config.tracking.get("mlflow")
    tracker = None if given is None or not _logs(task) else _tracker(task, given)
    if not task.is_primary:
        nowhere = Path(task.directory or tempfile.mkdtemp()) / "mlflow"
        # Files need no package of mlflow's beside mlflow-skinny, and in MLflow 3 this consent.
        variables = {"MLFLOW_TRACKING_URI": nowhere.as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true"}
        return {**variables, "WANDB_MODE": "disabled"}, tracker
    variables = {"WANDB_RUN_ID": task.config.run_id, "WANDB_RESUME": "allow", "WANDB_NAME": task.config.run}
    environment = {name: value for name, value in variables.items() if name not in os.environ}
    if given is None or tracker is None:
        return environment, tracker
    environment |= {"MLFLOW_TRACKING_URI": given["uri"], "MLFLOW_EXPERIMENT_NAME": given["experiment"]}
    try:
        run = tracker.join()
    except TrackerError as error:
        reporter.emit(tracker.notice(error))
        return environment, tracker
    return environment | ({} if run is None else {"MLFLOW_RUN_ID": run}), tracker


def _logs(task: Task) -> bool:
    """Returns whether this task writes records that a tracker has a place for."""
    return task.is_primary or task.role == "evaluator"


def _tracker(task: Task, given: Mapping[str, Any]) -> Tracker:
    config = task.config
    tags = {
        "tf-launcher.strategy": config.strategy,
        "tf-launcher.tasks": ", ".join(f"{count} {role}" for role, count in config.replicas.items()),
        "tf-launcher.version": VERSION,
        **({} if config.model_dir is None else {"tf-launcher.model_directory": config.model_dir}),
    }
    return Tracker(
        Server(given["uri"]),
        given["experiment"],
        config.run,
        config.run_id,
        config.parameters,
        tags,
        creates=task.is_primary,
    )
