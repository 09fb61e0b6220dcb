"""A training whose steps per second, processor time and memory a benchmark measures."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.first_step import free_ports
from benchmarks.measuring import ENVIRONMENT, ROOT
from benchmarks.processes import cpu_seconds, descendants
from worker.contract.environment import Env
from worker.contract.records import Progress, Record
from worker.contract.run_config import RunConfig
from worker.contract.task_names import pod_name

PROGRAMS = ROOT / "benchmarks" / "programs"
SECONDS = 3600
"""Limit of a whole comparison."""
_POLL_SECONDS = 0.05
_MEMORY_SECONDS = 0.5
_EPOCH = re.compile(r"epoch (\d+) at ([\d.]+)")


@dataclass(frozen=True)
class Training:
    """One strategy and loop with `steps` in an epoch. `entrypoint` and `parameters` are the runtime's."""

    strategy: str
    loop: str
    entrypoint: str
    replicas: Mapping[str, int]
    steps: int
    options: Mapping[str, object] = field(default_factory=dict)
    parameters: Mapping[str, object] = field(default_factory=dict)

    @property
    def may_stop(self) -> bool:
        """Returns whether its tasks may be stopped for a while and continued."""
        return self.strategy != "MultiWorkerMirrored"


@dataclass(frozen=True)
class Way:
    """How it is trained: the number of steps in a call, and whether by the runtime or by hand."""

    packed: int | str
    runtime: bool


class Contestant:
    """The processes of one training, which are stopped between its turns.

    Use it as a context manager. Raises RuntimeError where a task fails.
    """

    def __init__(self, training: Training, way: Way, epochs: int, directory: Path) -> None:
        self._training, self._way, self._epochs, self._directory = training, way, epochs, directory
        self._tasks = [(role, i) for role, count in training.replicas.items() for i in range(count)]
        self._processes: dict[tuple[str, int], subprocess.Popen[bytes]] = {}
        self._deadline = time.monotonic() + SECONDS
        self._ends = [time.time()]
        self._stopped: float | None = None

    def __enter__(self) -> Contestant:
        ports = free_ports(len(self._tasks))
        addresses = {task: f"127.0.0.1:{port}" for task, port in zip(self._tasks, ports, strict=True)}
        cluster = {
            role: [addresses[role, index] for index in range(count)]
            for role, count in self._training.replicas.items()
        }
        with ExitStack() as stack:
            stack.callback(self._kill)
            if self._way.runtime:
                command = ["-m", "worker"]
                primary = addresses[self._tasks[0]]
                _configure(self._training, self._way, self._epochs, primary, self._directory)
            else:
                command = [str(PROGRAMS / "tutorial.py"), self._training.strategy, self._training.loop]
                command += map(str, (self._way.packed, self._epochs, self._training.steps))
            for task in self._tasks:
                self._start(task, command, cluster)
            stack.pop_all()
        self._memory = _Memory({task: process.pid for task, process in self._processes.items()})
        return self

    def __exit__(self, *exception: object) -> None:
        self._memory.stop()
        self._kill()

    def turn(self) -> float:
        """Trains to the end of an epoch and a little into the next. Returns the epoch's steps a second."""
        began = self._ends[-1]
        if self._stopped is not None:
            began += time.time() - self._stopped
            self._signal(signal.SIGCONT)
        seen = len(self._ends)
        while len(ends := _epoch_ends(self._said(self._tasks[0]))) < seen:
            self._check()
            time.sleep(_POLL_SECONDS)
        self._ends.append(ends[seen - 1])
        if self._training.may_stop:
            self._signal(signal.SIGSTOP)
            self._stopped = time.time()
        return self._training.steps / (self._ends[-1] - began)

    def processor_seconds(self) -> dict[str, float]:
        """Returns user and system time so far by role: the sum of its tasks."""
        roles: dict[str, float] = {}
        for (role, _), process in self._processes.items():
            roles[role] = roles.get(role, 0.0) + sum(cpu_seconds(pid) for pid in descendants(process.pid))
        return roles

    def finish(self) -> dict[str, float]:
        """Trains to the end. Returns each role's peak of resident memory in MB."""
        self._signal(signal.SIGCONT)
        for (role, _), process in self._processes.items():
            if not self._way.runtime and self._training.strategy == "ParameterServer" and role != "chief":
                continue  # join() never returns
            process.wait(SECONDS)
            self._check()
        return self._memory.stop()

    def _start(self, task: tuple[str, int], command: Sequence[str], cluster: Mapping[str, object]) -> None:
        role, index = task
        pod = pod_name("bench", role, index)
        (self._directory / pod).mkdir()
        environment = {
            **ENVIRONMENT,
            "PYTHONPATH": str(ROOT),
            "TF_USE_LEGACY_KERAS": "1",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            Env.ROLE: role,
            Env.TASK_INDEX: str(index),
            Env.TASK_DIR: str(self._directory / pod),
        }
        if len(self._tasks) > 1:
            environment[Env.TF_CONFIG] = json.dumps(
                {"cluster": cluster, "task": {"type": role, "index": index}}
            )
        if self._way.runtime:
            environment |= {Env.CONFIG: str(self._directory / "run.json"), Env.SOURCE: str(PROGRAMS)}
        with self._log(task).open("wb") as log:
            self._processes[task] = subprocess.Popen(
                [sys.executable, *command], cwd=self._directory, env=environment, stdout=log, stderr=log
            )

    def _log(self, task: tuple[str, int]) -> Path:
        return self._directory / f"{pod_name('bench', *task)}.log"

    def _said(self, task: tuple[str, int]) -> str:
        return self._log(task).read_text()

    def _check(self) -> None:
        for task, process in self._processes.items():
            if process.poll():
                raise RuntimeError(f"{task} ended with {process.returncode}:\n{self._said(task)}")
        if time.monotonic() > self._deadline:
            raise RuntimeError(f"not done after {SECONDS} s:\n{self._said(self._tasks[0])}")

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes.values():
            for pid in descendants(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)
        for process in self._processes.values():
            process.wait()


def _epoch_ends(printed: str) -> list[float]:
    """In seconds since the epoch."""
    ends = []
    for line in printed.splitlines():
        record = Record.parse(line)
        if record is not None and isinstance(record.content, Progress) and record.content.epoch_end:
            ends.append(record.time)
        elif (match := _EPOCH.fullmatch(line)) is not None:
            ends.append(float(match[2]))
    return ends


def _configure(training: Training, way: Way, epochs: int, primary: str, directory: Path) -> None:
    parameters = {
        "epochs": epochs,
        "stepsPerEpoch": training.steps,
        "globalBatchSize": 32,
        "stepsPerExecution": way.packed,
        **training.parameters,
    }
    config = RunConfig(
        run="bench",
        strategy=training.strategy,
        strategy_options=training.options,
        entrypoint=training.entrypoint,
        parameters=parameters,
        replicas=training.replicas,
        chief_address=None if len(training.replicas) == 1 and "chief" in training.replicas else primary,
        starting_deadline_seconds=SECONDS,
        stall_seconds=SECONDS,
        chief_lost_seconds=SECONDS,
    )
    (directory / "run.json").write_text(config.to_json())


class _Memory:
    """Looks at the resident memory of the tasks while they run, each with the processes that it has started.

    As in a pod's limit, a page that several processes of a task share counts once: of the largest process its
    peak counts, of the others what is theirs alone.
    """

    def __init__(self, processes: Mapping[tuple[str, int], int]) -> None:
        self._processes = processes
        self._peaks = dict.fromkeys(processes, 0.0)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> dict[str, float]:
        """In MB by role: the mean of its tasks."""
        self._stopping.set()
        self._thread.join()
        roles: dict[str, list[float]] = {}
        for (role, _), peak in self._peaks.items():
            roles.setdefault(role, []).append(peak)
        return {role: statistics.mean(peaks) for role, peaks in roles.items()}

    def _watch(self) -> None:
        while not self._stopping.wait(_MEMORY_SECONDS):
            for task, pid in self._processes.items():
                family = {each: sum(_memory_of(each, "status", "VmHWM")) for each in descendants(pid)}
                largest = max(family, key=family.__getitem__)
                others = (_memory_of(each, "smaps_rollup", "Private") for each in family if each != largest)
                total = family[largest] + sum(itertools.chain.from_iterable(others))
                self._peaks[task] = max(self._peaks[task], total)


def _memory_of(pid: int, file: str, field: str) -> list[float]:
    """The values in MB of the fields of /proc/PID/FILE that start so; none where the process has ended."""
    try:
        text = Path(f"/proc/{pid}/{file}").read_text()
    except OSError:
        return []
    return [int(number) / 1024 for number in re.findall(rf"^{field}\w*:\s+(\d+) kB", text, re.MULTILINE)]
