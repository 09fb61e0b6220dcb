"""Real tasks of one run as processes on this machine, started without the launcher."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.free_ports import free_addresses
from tests.worker import forked_tasks
from worker.contract.environment import Env
from worker.contract.records import Event, Record
from worker.contract.run_config import DataService, ElasticWorkers, RunConfig
from worker.contract.task_names import DATA_WORKER, DISPATCHER, pod_name

ROOT = forked_tasks.ROOT
PROGRAMS = Path(__file__).parent / "programs"
PATIENCE_SECONDS = 180.0
DATA_ROLES = (DISPATCHER, DATA_WORKER)
PARAMETER_SERVER = {"chief": 1, "worker": 2, "ps": 1}


class RunningTask:
    """One process, whose output is read as it comes."""

    def __init__(self, name: str, process: forked_tasks.Process) -> None:
        self.name = name
        self.process = process
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def records(self, event: str | None = None) -> list[Record]:
        records = [record for line in list(self.lines) if (record := Record.parse(line))]
        return [record for record in records if event in (None, record.event)]

    def until(self, event: str, **fields: Any) -> Record:
        """Waits for the first record of `event` with these fields."""

        def matching() -> Record | None:
            for record in self.records(event):
                if all(record.fields.get(name) == value for name, value in fields.items()):
                    return record
            return None

        deadline = time.monotonic() + PATIENCE_SECONDS
        with self._changed:
            while (record := matching()) is None:
                if time.monotonic() > deadline or not self._reader.is_alive():
                    raise AssertionError(f"{self.name} never said {event} {fields}:\n{self.output}")
                self._changed.wait(1.0)
        return record

    def until_notice(self, text: str) -> None:
        """Waits for a notice with this text in it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self._changed:
            while not any(text in record.fields["message"] for record in self.records(Event.NOTICE)):
                if time.monotonic() > deadline or not self._reader.is_alive():
                    raise AssertionError(f"{self.name} never said {text!r}:\n{self.output}")
                self._changed.wait(1.0)

    def printed(self, text: str) -> None:
        """Waits for a line of exactly this text."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self._changed:
            while text not in self.lines:
                if time.monotonic() > deadline or not self._reader.is_alive():
                    raise AssertionError(f"{self.name} never printed {text!r}:\n{self.output}")
                self._changed.wait(1.0)

    def ended(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Waits for the exit code; negative for a signal."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end:\n{self.output}") from None
        self._reader.join(30.0)  # a busy machine's reader is behind
        return code

    def eventually(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for an effect of this task."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise AssertionError(f"{self.name}, never: {what}:\n{self.output}")
            time.sleep(0.05)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Ends it if it runs, and closes its output."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
            self.kill()
        self._reader.join(5.0)
        if self.process.stdout is not None:
            self.process.stdout.close()


class Cluster:
    """The tasks of one run under `directory`: addresses, run configuration, processes."""

    def __init__(
        self,
        directory: Path,
        replicas: Mapping[str, int] = PARAMETER_SERVER,
        strategy: str = "ParameterServer",
        entrypoint: str | None = "tiny:Tiny",
        source: Path = PROGRAMS,
        parameters: Mapping[str, Any] | None = None,
        model_dir: str | None = "",
        elastic: ElasticWorkers | None = None,
        sharding: str = "DYNAMIC",
        variables: Callable[[str, int], Mapping[str, str]] = lambda role, index: {},
        copies: Path | None = None,
        **config: Any,
    ) -> None:
        """`variables` returns further environment variables of a task."""
        self.directory = directory
        self.source = source
        self.model_dir = directory / "model"
        self.elastic = elastic
        self.variables = variables
        self.copies = copies
        self.replicas = {**replicas, "worker": elastic.max} if elastic is not None else dict(replicas)
        tasks = [(role, index) for role, count in self.replicas.items() for index in range(count)]
        self.addresses = dict(zip(tasks, free_addresses(len(tasks)), strict=True))
        trains = [self.addresses[task] for task in tasks if task[0] in ("chief", "worker")]
        if (DISPATCHER, 0) in self.addresses:
            config["data_service"] = DataService(
                dispatcher=self.addresses[DISPATCHER, 0],
                workers=[self.addresses[task] for task in tasks if task[0] == DATA_WORKER],
                primary=trains[0],
                sharding=sharding,
                shared=True,
            )
        self.config = RunConfig(
            **{
                "run": "tiny",
                "run_id": "1",
                "strategy": strategy,
                "entrypoint": entrypoint,
                "parameters": {"epochs": 3, "stepsPerEpoch": 20, "globalBatchSize": 20, **(parameters or {})},
                "model_dir": str(self.model_dir) if model_dir == "" else model_dir,
                "replicas": self.replicas,
                "chief_address": trains[0] if trains else None,
                "starting_deadline_seconds": 60,
                "stall_seconds": 60,
                "chief_lost_seconds": 60,
                **config,
            }
        )
        apart = ("evaluator", *DATA_ROLES)
        self._single = sum(count for role, count in replicas.items() if role not in apart) == 1
        self.tasks: list[RunningTask] = []

    def task_dir(self, role: str, index: int = 0) -> Path:
        return self.directory / "pods" / pod_name("tiny", role, index) / "task"

    def copies_dir(self, role: str, index: int = 0) -> Path:
        assert self.copies is not None
        return self.copies / f"{role}-{index}"

    def environment(self, role: str, index: int = 0) -> dict[str, str]:
        config = self.directory / "run.json"
        config.parent.mkdir(parents=True, exist_ok=True)
        # The whole file or nothing: a task that was started before may be reading it.
        new = config.with_suffix(".new")
        new.write_text(self.config.to_json())
        new.replace(config)
        self.task_dir(role, index).mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            Env.TASK_INDEX: str(index),
            Env.ROLE: role,
            Env.CONFIG: str(config),
            Env.TASK_DIR: str(self.task_dir(role, index)),
            Env.SOURCE: str(self.source),
            **self.variables(role, index),
        }
        if self.copies is not None and role in ("chief", "worker", "ps"):
            folder = self.copies_dir(role, index)
            folder.mkdir(parents=True, exist_ok=True)
            environment[Env.COPIES_DIR] = str(folder)
        tf_config = self.tf_config(role, index)
        if tf_config:
            environment[Env.TF_CONFIG] = json.dumps(tf_config)
        if self.elastic is not None:
            environment[Env.ELASTIC_WORKERS] = self.elastic.to_json()
        return environment

    def tf_config(self, role: str, index: int) -> dict[str, Any] | None:
        """Returns a sparse TF_CONFIG for a worker or ps, the training cluster for a task that trains, None
        for one task.
        """
        address = self.addresses[role, index]
        if role == "evaluator":
            cluster: dict[str, Any] = {"evaluator": [address]}
        elif role in DATA_ROLES:
            cluster = {role: {str(index): address}}
        elif self._single:
            return None
        elif self.config.strategy == "ParameterServer" and role != "chief":
            cluster = {role: {str(index): address}}
        else:
            cluster = {
                name: [self.addresses[name, task] for task in range(count)]
                for name, count in self.replicas.items()
                if name not in ("evaluator", *DATA_ROLES)
            }
        return {"cluster": cluster, "task": {"type": role, "index": index}}

    def start(
        self,
        role: str,
        index: int = 0,
        prefix: tuple[str, ...] = (),
        python: tuple[str, ...] = ("-m", "worker"),
    ) -> RunningTask:
        environment = self.environment(role, index)
        if prefix or python != ("-m", "worker"):
            command = [*prefix, sys.executable, *python]
            process = forked_tasks.fresh(command, environment, self.directory)
        else:
            process = forked_tasks.start(environment, self.directory, self.config.keras)
        task = RunningTask(pod_name("tiny", role, index), process)
        self.tasks.append(task)
        return task

    def start_all(self, but: tuple[str, ...] = ()) -> dict[tuple[str, int], RunningTask]:
        return {task: self.start(*task) for task in self.addresses if task[0] not in but}

    def stop(self) -> None:
        for task in self.tasks:
            task.stop()


@contextlib.contextmanager
def running(directory: Path, **options: Any) -> Iterator[Cluster]:
    cluster = Cluster(directory, **options)
    try:
        yield cluster
    finally:
        cluster.stop()


def eventually(condition: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)
