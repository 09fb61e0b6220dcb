"""The runs whose tasks `benchmarks.recovery` kills: submitted runs, and processes started by hand."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from benchmarks import clusters, pods, processes
from benchmarks.first_step import free_ports
from benchmarks.measuring import ENVIRONMENT
from launcher.backends.base import LogLine
from launcher.errors import NotFoundError
from worker.contract.records import Event, Record

Task = tuple[str, int]
SOURCES = [clusters.PROGRAMS / name for name in ("small.py", "marked.py", "bare.py", "counted.py")]
_MARK = re.compile(r'(step|training|evaluated) at "?([\d.]+)"?(?: after (\d+))?')
_EVENTS = {Event.TRAINING: "training", Event.EVALUATION: "evaluated", Event.READY: "ready"}
_REPLACED_SECONDS = 300.0
_GRACE_SECONDS = 8
_ROUNDED = 0.001
"""The precision of the times, in seconds."""
_CONNECTED = "waiting for the next generation of workers"
"""What a worker of an elastic collective does that could train."""


@dataclass(frozen=True)
class Shape:
    """A strategy with its tasks, the primary's role first. `victims` are killed one after the other;
    `in_place`: only their training processes, which are started again in their pods; `deleted`: their pods
    are deleted, and have their grace. `elastic`: workers come and go, and `joins` is the one that `scale`
    adds at the end.
    """

    strategy: str
    replicas: Mapping[str, int]
    victims: Sequence[Task]
    in_place: bool = False
    deleted: bool = False
    elastic: bool = False
    joins: Task | None = None

    @property
    def name(self) -> str:
        """Returns the name in the table."""
        name = f"{self.strategy}, elastic" if self.has_generations else self.strategy
        if self.deleted:
            return f"{name}, pod deleted"
        return f"{name}, in its pod" if self.in_place else name

    @property
    def has_generations(self) -> bool:
        """Returns whether the others go on without a lost task, and do not wait for its Job."""
        return self.elastic and self.strategy == "MultiWorkerMirrored"

    @property
    def keeps_itself(self) -> bool:
        """Returns whether its tasks have the training in memory, also when one pod is lost."""
        return len(self.tasks) > 1 and "evaluator" not in self.replicas and not self.has_generations

    @property
    def tasks(self) -> list[Task]:
        """All of them."""
        return [(role, index) for role, count in self.replicas.items() for index in range(count)]

    @property
    def primary(self) -> Task:
        """Returns the task that begins the training."""
        return next(iter(self.replicas)), 0

    def repeats(self, victim: Task) -> bool:
        """Returns whether the training begins again somewhere when `victim` is lost."""
        return victim[0] != "evaluator" and (self.strategy, victim[0]) != ("ParameterServer", "worker")

    def loses(self, victim: Task) -> list[Task]:
        """Returns the tasks whose Jobs start them again when `victim` is killed, itself included."""
        if self.deleted:
            return [victim]
        if self.strategy == "MultiWorkerMirrored":
            return self.tasks
        return [victim, self.primary] if victim[0] == "ps" else [victim]


class Backup(NamedTuple):
    """TensorFlow's BackupAndRestore by `frequency`, "epoch" or a number of steps, with epochs of
    `epoch_steps`.
    """

    frequency: str
    epoch_steps: int


@dataclass
class Marks:
    """The lines of the tasks, with times in seconds since the epoch. `steps` has how many steps were done, of
    each line that says it.
    """

    events: list[tuple[float, str, Task]] = field(default_factory=list)
    steps: list[tuple[float, int]] = field(default_factory=list)

    def add(self, task: Task, line: str) -> None:
        """A line that `task` has printed."""
        record = Record.parse(line)
        if record is not None and record.fields.get("activity") == _CONNECTED:
            self.events.append((record.time, "ready", task))
        elif record is not None and record.event in _EVENTS:
            self.events.append((record.time, _EVENTS[record.event], task))
        elif match := _MARK.search(line):
            self.events.append((float(match[2]), match[1], task))
            if match[3] is not None:
                self.steps.append((float(match[2]), int(match[3])))

    def first(self, kind: str, after: float, task: Task | None = None) -> float | None:
        """Returns the time of the first such line after `after`, of `task`, or of any but an evaluator."""
        times = [
            time
            for time, what, who in self.events
            if what == kind and time > after and (who == task or (task is None and who[0] != "evaluator"))
        ]
        return min(times, default=None)

    def recovered(self, shape: Shape, victim: Task, killed: float) -> float | None:
        """Returns when the run recovered from the kill of `victim`: an evaluator has evaluated, a
        coordinator's worker has run a step; for other tasks, a training has begun after the kill.
        """
        # A deleted pod goes on for a while: a worker as long as its grace period lets it.
        since = self.first("replaced", killed, victim) if shape.deleted else killed
        if victim[0] == "evaluator":
            return None if since is None else self.first("evaluated", since, victim)
        if shape.strategy == "ParameterServer" and victim[0] == "worker":
            return None if since is None else self.first("step", since, victim)
        began = self.first("training", killed, shape.primary)
        return None if began is None else self.first("step", began)

    def lost(self, begun: float, killed: float, recovered: float) -> tuple[int, float]:
        """Returns how many steps were done when the task was killed, and again after the recovery; and since
        when, in seconds before the kill. The training had `begun` after the kill before.
        """
        before = [(time, done) for time, done in self.steps if begun - _ROUNDED <= time < killed]
        again = min((done for time, done in self.steps if time >= recovered - _ROUNDED), default=0)
        steps = max(0, max((done for _, done in before), default=0) - again)
        since = [time for time, done in before if done >= again]
        return steps, killed - min(since, default=killed)

    def pause(self, begin: float, end: float) -> float:
        """Returns the longest time without a step of any task in between."""
        steps = sorted(
            time
            for time, what, who in self.events
            if what == "step" and begin < time < end and who[0] != "evaluator"
        )
        return max(after - before for before, after in zip([begin, *steps], [*steps, end], strict=True))


class Training(Protocol):
    """A run that trains until the context ends."""

    marks: Marks

    def __enter__(self) -> Training: ...

    def __exit__(self, *_: object) -> None: ...

    def kill(self, victim: Task) -> float:
        """With SIGKILL. Returns when, in seconds since the epoch."""

    def look(self) -> None:
        """Brings `marks` up to date. Raises RuntimeError where the run is over."""


class ByHand:
    """Processes of the script `bare`, or with a `backup` of `backed_up`. Whoever has to start again is
    started at once, by the same signal.
    """

    def __init__(self, shape: Shape, directory: Path, backup: Backup | None = None) -> None:
        script = "bare.py" if backup is None else "backed_up.py"
        self._command = [sys.executable, str(clusters.PROGRAMS / script), shape.strategy]
        if backup is not None:
            self._command += [str(directory / "backup"), backup.frequency, str(backup.epoch_steps)]
        self.marks = Marks()
        self._shape = shape
        self._directory = directory
        self._processes: dict[Task, subprocess.Popen[bytes]] = {}
        self._offsets: dict[Task, int] = dict.fromkeys(shape.tasks, 0)
        ports = free_ports(len(shape.tasks))
        self._addresses = {task: f"127.0.0.1:{port}" for task, port in zip(shape.tasks, ports, strict=True)}

    def __enter__(self) -> ByHand:
        for task in self._shape.tasks:
            self._start(task)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def kill(self, victim: Task) -> float:
        """See `Training`."""
        lost = self._shape.loses(victim)
        now = time.time()
        for task in lost:
            self._processes[task].kill()
            self._processes[task].wait()
        for task in lost:
            self._start(task)
        return now

    def look(self) -> None:
        """See `Training`."""
        for task, process in self._processes.items():
            log = self._log(task).read_bytes()
            whole = log[self._offsets[task] :].rpartition(b"\n")[0]
            self._offsets[task] += len(whole)
            for line in whole.decode(errors="replace").splitlines():
                self.marks.add(task, line)
            if process.poll() is not None:
                raise RuntimeError(f"{task} ended with {process.returncode}:\n{log.decode()[-2000:]}")

    def _log(self, task: Task) -> Path:
        return self._directory / f"{task[0]}-{task[1]}.log"

    def _start(self, task: Task) -> None:
        role, index = task
        training = {
            each: [self._addresses[each, number] for number in range(count)]
            for each, count in self._shape.replicas.items()
            if each != "evaluator"
        }
        cluster = {role: [self._addresses[task]]} if role == "evaluator" else training
        environment = {**ENVIRONMENT, "TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
        if sum(map(len, cluster.values())) > 1 or role == "evaluator":
            environment["TF_CONFIG"] = json.dumps(
                {"cluster": cluster, "task": {"type": role, "index": index}}
            )
        with self._log(task).open("ab") as log:
            self._processes[task] = subprocess.Popen(
                self._command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )


class Submitted:
    """A run of the launcher's: by the runtime, or with `bare` every task as a plain command.

    It trains `entrypoint`, where that is given, and keeps its model then, with so many `restarts`.
    `keras` is what tf.keras means in it.
    """

    def __init__(
        self,
        shape: Shape,
        directory: Path,
        backend: str,
        image: str = "",
        *,
        bare: bool = False,
        entrypoint: str = "",
        steps_per_epoch: int = 24_000,
        batch: int = 32,
        restarts: int = 0,
        keras: int = 2,
    ) -> None:
        self.marks = Marks()
        self._shape = shape
        self._backend = backend
        self._directory = directory
        self._lines: queue.SimpleQueue[LogLine] = queue.SimpleQueue()
        self._over = False
        self._attempts: dict[Task, int] = {}
        self._watching = ThreadPoolExecutor(1)
        self.replacement: Future[pods.Replacement] | None = None
        """Of the pod that was deleted last."""
        spec: dict[str, Any] = {"image": image} if image else {}
        if bare:
            # The shell is process 1 of the container, which nothing inside can kill.
            spec["command"] = ["sh", "-c", f"python bare.py {shape.strategy}; exit $?"]
        else:
            is_evaluated = "evaluator" in shape.replicas
            parameters = {
                "epochs": 100_000,
                "stepsPerEpoch": 400 if is_evaluated else steps_per_epoch,
                "globalBatchSize": batch,
                "stepsPerExecution": 1,
            }
            marked = "marked:Evaluated" if is_evaluated else "marked:Marked"
            spec["program"] = {"entrypoint": entrypoint or marked, "parameters": parameters, "keras": keras}
        if not bare and not entrypoint and shape.in_place and shape.keeps_itself:
            spec |= {"modelDir": None, "storage": None}
        # On a cluster the supervisor is killed with its pod, so nothing can start again there.
        may_restart = shape.in_place or shape.deleted or backend == "kubernetes"
        tries = restarts or len(shape.victims) + 1
        spec["runPolicy"] = {"backoffLimit": tries, "restartsInPlace": tries if may_restart else 0}
        roles: dict[str, Any] = {}
        if shape.deleted and "worker" in shape.replicas:
            # A worker of ParameterServer works on for its grace.
            roles["worker"] = {"podTemplate": {"spec": {"terminationGracePeriodSeconds": _GRACE_SECONDS}}}
        if shape.elastic and not bare:
            roles.setdefault("worker", {}).update(minReplicas=1, maxReplicas=shape.replicas["worker"] + 1)
        on_host = backend == "local"
        name = f"recovery-{os.getpid()}"  # others may measure beside this one
        self._file = clusters.write(
            directory, name, shape.strategy, shape.replicas, SOURCES, spec, roles, on_host=on_host
        )

    def __enter__(self) -> Submitted:
        import launcher

        os.environ["XDG_STATE_HOME"] = str(self._directory)
        kind: Literal["local", "kubernetes"] = "local" if self._backend == "local" else "kubernetes"
        # Not detached: a run on this machine ends with the harness.
        self._run = launcher.submit(self._file, backend=kind, detach=False)
        threading.Thread(target=self._follow, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._run.delete()
        self._watching.shutdown()

    def _follow(self) -> None:
        try:
            with contextlib.suppress(NotFoundError):  # deleted, at the end
                for line in self._run.logs(follow=True):
                    self._lines.put(line)
        finally:
            self._over = True

    def look(self) -> None:
        """See `Training`."""
        while not self._lines.empty():
            line = self._lines.get()
            task = (line.role, line.index)
            if line.attempt > self._attempts.get(task, 0):
                self._attempts[task] = line.attempt
                self.marks.events.append((time.time(), "replaced", task))
            self.marks.add(task, line.text)
        if self._over:
            raise RuntimeError(f"the run is over: {self._run.status()}")

    def add(self, worker: Task) -> float:
        """Has the run get one more worker, `worker`. Returns when, in seconds since the epoch."""
        now = time.time()
        self._run.scale(worker[1] + 1)
        return now

    def suspend(self, seconds: float) -> None:
        """Suspends the run, and waits until its tasks have left. Raises RuntimeError after so long."""
        self._run.suspend()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if not processes.with_environment(f"TF_LAUNCHER_CONFIG={self._directory}/"):
                return
            time.sleep(0.1)
        raise RuntimeError(f"the run was not suspended within {seconds:.0f} s")

    def kill(self, victim: Task, *, whole: bool = False) -> float:
        """See `Training`. `whole`: its pod, and not only its training process, on this machine."""
        role, index = victim
        if self._backend == "local":
            config_variable = f"TF_LAUNCHER_CONFIG={self._directory}/"
            pids = processes.with_environment(
                config_variable, f"TF_LAUNCHER_ROLE={role}", f"TASK_INDEX={index}"
            )
            now = time.time()
            # The training process is the newest.
            in_place = self._shape.in_place and not whole
            processes.send(pids[-1:] if in_place else pids, signal.SIGKILL)
            return now
        task = (self._run.name, self._run.namespace, role, index)
        if self._shape.deleted:
            now, pod = pods.delete(*task)
            selector = pods.labels(self._run.name, role, index)
            self.replacement = self._watching.submit(
                pods.replacement, pod, self._run.namespace, selector, _REPLACED_SECONDS
            )
            return now
        return pods.kill_in_pod(*task, in_place=self._shape.in_place)
