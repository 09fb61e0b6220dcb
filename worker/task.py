"""The task that this process is, from its environment variables. Standard library only."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worker.contract.environment import Env
from worker.contract.exit_codes import ExitCode
from worker.contract.run_config import GRACE_SECONDS, ElasticWorkers, RunConfig, elastic_workers
from worker.contract.strategies import STRATEGIES
from worker.contract.task_names import EXTRA_WORKER, TaskFile, task_file, task_type
from worker.failures import Failure


@dataclass(frozen=True)
class Generation:
    """The tasks that train together now in an elastic collective. `pods` has their pods' names by role and
    index in the cluster; `workers` says how many workers there may be.
    """

    pods: Mapping[tuple[str, int], str]
    workers: ElasticWorkers


@dataclass(frozen=True)
class Task:
    """This process as a task of its run.

    `cluster` is TF_CONFIG's "cluster" with its lists as mappings: role to index to `host:port`; it is empty
    where there is no TF_CONFIG. `source` is the directory of the program's source, None for a module of the
    image.
    """

    config: RunConfig
    role: str
    index: int
    cluster: Mapping[str, Mapping[int, str]]
    directory: str | None
    source: Path | None
    elastic: ElasticWorkers | None = None
    """Set in an elastic run whose `cluster` has as many workers as there may be."""
    generation: Generation | None = None
    """Set in an elastic collective that trains: `cluster` has the tasks of one generation."""

    @property
    def name(self) -> str:
        """Returns the pod's name."""
        return self.pod(self.role, self.index)

    @property
    def script(self) -> Path | None:
        """Returns the path of the Keras script that the run trains by, if it does."""
        return None if self.config.script is None else (self.source or Path.cwd()) / self.config.script

    @property
    def address(self) -> str | None:
        """Returns this task's address, None where there is no TF_CONFIG."""
        return self.cluster.get(self.role, {}).get(self.index)

    @property
    def grace_seconds(self) -> int:
        """Returns the seconds from SIGTERM to SIGKILL."""
        return self.config.grace_seconds.get(self.role, GRACE_SECONDS)

    @property
    def peers(self) -> dict[str, str]:
        """Returns pod name and address of every other task in TF_CONFIG."""
        return {
            self.pod(role, index): address
            for role, tasks in self.cluster.items()
            for index, address in tasks.items()
            if (role, index) != (self.role, self.index)
        }

    @property
    def rank(self) -> int:
        """Returns this task's number among those of a collective: 0 for the one that hosts TensorFlow's
        coordination service, the chief or else worker 0.
        """
        return 0 if self.role == "chief" else self.index + ("chief" in self.cluster)

    def pod(self, role: str, index: int) -> str:
        """Returns the pod name of a task of `cluster`."""
        pods = self.generation.pods if self.generation is not None else {}
        return pods.get((role, index)) or self.config.pod_name(role, index)

    def file(self, name: TaskFile) -> Path | None:
        """Returns the path of a file of this task's, None where it has no directory."""
        return Path(self.file_of(self.name, name)) if self.directory is not None else None

    def file_of(self, pod: str, name: TaskFile) -> str:
        """Returns the path of a file of the task in `pod`, as that task knows it."""
        return task_file(name, self.directory or "", self.name, pod)

    @property
    def serves(self) -> bool:
        """Returns whether this task only runs a TensorFlow server, for a coordinator."""
        return self.config.is_coordinated and self.role in STRATEGIES[self.config.strategy].servers

    @property
    def is_extra(self) -> bool:
        """Returns whether a queue admits this task by itself. `index` must be that of its pod."""
        return self.role == "worker" and self.index >= self.config.first_extra_worker > 0

    @property
    def is_primary(self) -> bool:
        """Returns whether this task writes the model directory: the chief, or worker 0 where there is no
        chief.
        """
        if self.role == "chief":
            return True
        # TF_CONFIG does not tell: under ParameterServer that of a worker names itself only.
        return self.role == "worker" and self.index == 0 and not self.config.replicas.get("chief")


def from_environment() -> Task:
    """Reads the variables of `Env`, and sets TF_CONFIG in `os.environ` where it comes from a file.

    Raises Failure (PROGRAM_ERROR) that names the variable.
    """
    path = os.environ.get(Env.CONFIG)
    if not path:
        raise _misuse(
            f"{Env.CONFIG} is not set: `python -m worker` is the command of a pod made by `launcher submit`; "
            "`launcher submit FILE --backend local` runs one on this machine"
        )
    try:
        config = RunConfig.from_json(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _misuse(f"{Env.CONFIG}={path}: {error}") from error
    _assemble_tf_config()
    document = _tf_config()
    if config.first_extra_worker:
        _count_among_workers(document, config.first_extra_worker)
    task = document.get("task", {})
    role = task.get("type") or os.environ.get(Env.ROLE) or "chief"
    index = task.get("index", os.environ.get(Env.TASK_INDEX, "0"))
    source = os.environ.get(Env.SOURCE)
    try:
        elastic = elastic_workers(os.environ)
    except ValueError as error:
        raise _misuse(str(error)) from error
    generation = None
    if elastic is not None and "pods" in document:
        pods = [(name, *each) for name, names in document["pods"].items() for each in enumerate(names)]
        generation = Generation({(name, rank): pod for name, rank, pod in pods}, elastic)
    try:
        return Task(
            config=config,
            role=role,
            index=int(index),
            cluster={name: _by_index(tasks) for name, tasks in document.get("cluster", {}).items()},
            directory=os.environ.get(Env.TASK_DIR),
            source=Path(source).resolve() if source else None,
            elastic=elastic if generation is None else None,
            generation=generation,
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise _misuse(f"{Env.TF_CONFIG} does not describe a cluster: {error}") from error


def _assemble_tf_config() -> None:
    path = os.environ.get(Env.CLUSTER_FILE)
    if not path or os.environ.get(Env.TF_CONFIG):
        return
    try:
        cluster = json.loads(Path(path).read_text(encoding="utf-8"))
        task = {"type": os.environ[Env.ROLE], "index": int(os.environ[Env.TASK_INDEX])}
    except KeyError as error:
        raise _misuse(f"{Env.CLUSTER_FILE} is set, but {error.args[0]} is not") from error
    except (OSError, ValueError) as error:
        raise _misuse(f"{Env.CLUSTER_FILE}={path}: {error}") from error
    # The limit of 128 KiB is that of execve; a process may set a longer variable for itself.
    os.environ[Env.TF_CONFIG] = json.dumps({"cluster": cluster, "task": task})


def _count_among_workers(document: dict[str, Any], first: int) -> None:
    """Gives an extra worker its number among all workers, which Kubernetes cannot compute, in `document` and
    in TF_CONFIG.
    """
    task, cluster = document.get("task", {}), document.get("cluster", {})
    if task.get("type") != EXTRA_WORKER:
        return
    task.update(type=task_type(EXTRA_WORKER), index=first + int(task["index"]))
    if EXTRA_WORKER in cluster:
        (address,) = cluster.pop(EXTRA_WORKER).values()
        cluster[task["type"]] = {str(task["index"]): address}
    os.environ[Env.TF_CONFIG] = json.dumps(document)


def _tf_config() -> dict[str, Any]:
    try:
        document = json.loads(os.environ.get(Env.TF_CONFIG) or "{}")
    except ValueError as error:
        raise _misuse(f"{Env.TF_CONFIG} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise _misuse(f"{Env.TF_CONFIG} is not a JSON object")
    return document


def _by_index(tasks: Any) -> dict[int, str]:
    if isinstance(tasks, list):
        return dict(enumerate(tasks))
    return {int(index): address for index, address in tasks.items()}


def _misuse(message: str) -> Failure:
    return Failure(message, ExitCode.PROGRAM_ERROR)
