"""Profiles steps of a training when a command asks for it: TensorFlow's profiler runs in all tasks for the
same steps, from one boundary between two executions to another.

The supervisor of the first task leaves the order in a file. The tasks of a collective agree on the boundary
as they do on a checkpoint (`halts`), and each writes its own part. A coordinator waits for its steps before,
and after them; it tells its servers when to begin and to end, and writes what they have (`server_profiles`).

All is written to `logs/plugins/profile/TIME.step-N/TASK.xplane.pb` in the model directory, where TensorBoard
looks for it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import tensorflow as tf

from worker.checkpoints.files import Files
from worker.collective import kv_store
from worker.collective.halts import Halts
from worker.failures import Failure, sentence
from worker.parameter_server.server_profiles import Servers
from worker.process.process_profile import Profile
from worker.process.watch import Watch
from worker.reporting import Reporter
from worker.task import Task

_FOLDER = "logs"
"""TensorBoard looks for `plugins/profile` below it."""
_WRITING_SECONDS = 60.0
"""Limit for an upload to a bucket. The training waits for it."""
_ERRORS = (tf.errors.OpError, OSError, Failure)


class _Order(NamedTuple):
    """`number` is the supervisor's, `time` when it was taken, as TensorFlow names profiles."""

    number: str
    time: str
    steps: int

    def __str__(self) -> str:
        return f"profile/{self.number}/{self.time}/{self.steps}"

    @classmethod
    def parse(cls, text: str) -> _Order:
        """Reads the text of `str`."""
        _, number, when, steps = text.split("/")
        return cls(number, when, int(steps))


@dataclass
class _Active:
    """A profile of the steps after `first`. `profile` is None where this task takes none, and `problems` says
    why, by pod name. `servers` are those of a coordinator.
    """

    order: _Order
    first: int
    profile: Profile | None = None
    servers: Servers | None = None
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """Returns the name of its folder. There may be two in a second."""
        return f"plugins/profile/{self.order.time}.step-{self.first + 1}"


class Profiler:
    """Profiles the training of `task`, and writes to `files`."""

    def __init__(self, task: Task, files: Files, reporter: Reporter, watch: Watch) -> None:
        self._task = task
        self._files = files
        self._reporter = reporter
        self._watch = watch
        self._path = task.file("profile") if task.is_primary else None
        self._halts = Halts(task) if task.config.is_collective and task.peers else None
        if self._halts is not None:
            self._halts.watch()
        if self._path is not None:
            watch.trains(True)
        self._active: _Active | None = None
        self._is_first = True
        self._proposed = ""
        """The number of the order on which the tasks agree at the moment."""

    def taken(self, steps: int, settle: Callable[[], object] | None = None) -> None:
        """Must be called before each execution, when so many steps are taken, or have been scheduled: then
        `settle` waits for them. Without an order it is cheap.
        """
        if self._active is not None:
            if steps - self._active.first >= self._active.order.steps:
                self._end(self._active, steps, settle)
            elif self._active.profile is not None:
                self._active.profile.step(steps)
        order = self._agreed()
        # The first execution is traced, and takes many times as long as another.
        if order is not None and self._active is None:
            self._begin(order, steps, settle)
        self._is_first = False

    def trained(self, steps: int) -> None:
        """Must be called when all steps are taken."""
        if self._active is not None:
            self._end(self._active, steps, None)
        if self._path is not None:
            self._watch.trains(False)

    def _agreed(self) -> _Order | None:
        """Returns what all tasks begin here."""
        if self._halts is None:
            return self._ordered()
        orders = [_Order.parse(text) for text in self._halts.boundary()]
        order = None if orders or self._proposed else self._ordered()
        if order is not None:
            self._proposed = order.number
            self._halts.propose(str(order))
        if orders:
            self._proposed = ""
        return orders[0] if orders else None

    def _ordered(self) -> _Order | None:
        """Takes the order that the supervisor has left, if there is one and it can be carried out now."""
        if self._path is None or self._is_first or self._active is not None or not self._path.exists():
            return None
        try:
            document = json.loads(self._path.read_text(encoding="utf-8"))
            self._path.unlink()
        except FileNotFoundError:
            return None  # it was withdrawn
        when = time.strftime("%Y_%m_%d_%H_%M_%S")
        return _Order(document["number"], when, max(1, document["steps"]))

    def _begin(self, order: _Order, steps: int, settle: Callable[[], object] | None) -> None:
        active = _Active(order, steps)
        if self._task.config.is_coordinated:
            if settle is not None:
                settle()
            active.servers = Servers(self._task, order.number, self._watch.alive)
        try:
            active.profile = Profile()
            active.profile.step(steps)
        except _ERRORS as error:
            active.problems[self._task.name] = sentence(error)
        self._active = active

    def _end(self, active: _Active, steps: int, settle: Callable[[], object] | None) -> None:
        """Ends the profile before the next execution. The training waits until it is written: what goes wrong
        with that is told, and ends no training.
        """
        self._active, task_name, problems = None, self._task.name, active.problems
        if settle is not None:
            settle()
        if active.servers is not None:
            active.servers.end()
        parts: dict[str, bytes] = {}
        if active.profile is not None:
            try:
                parts[task_name] = active.profile.end()
            except _ERRORS as error:
                problems[task_name] = sentence(error)
        if active.servers is not None:
            parts.update(active.servers.contents())
            problems.update(active.servers.problems)
        self._watch.alive()
        if (problem := self._write(active.folder, parts)) is not None:
            problems.update(dict.fromkeys(parts, problem))
        tasks = [name for name in parts if name not in problems]
        if self._halts is not None:
            reports = self._exchanged(active.order.number, [tasks, problems])
            tasks = [name for names, _ in reports for name in names]
            problems = {name: problem for _, each in reports for name, problem in each.items()}
        if self._path is not None:
            self._tell(active, steps, tasks, problems)

    def _write(self, folder: str, parts: Mapping[str, bytes]) -> str | None:
        """Returns why they could not be written."""
        until = time.monotonic() + _WRITING_SECONDS
        path = f"{self._files.logs(_FOLDER)}/{folder}"
        try:
            tf.io.gfile.makedirs(path)
            for name, content in parts.items():
                with tf.io.gfile.GFile(f"{path}/{name}.xplane.pb", "wb") as file:
                    file.write(content)
            if self._files.settle(lambda: time.monotonic() > until):
                return None
        except _ERRORS as error:
            return sentence(error)
        return f"it was not uploaded within {_WRITING_SECONDS:.0f} s"

    def _exchanged(self, number: str, report: Any) -> list[Any]:
        """Returns what all tasks say; to another task than the first, nothing."""
        keys = [f"profile/{number}/{rank}" for rank in range(1 + len(self._task.peers))]
        kv_store.put(keys[self._task.rank], json.dumps(report))
        if self._path is None:
            return []
        alive = self._watch.alive
        return list(map(json.loads, kv_store.gather(keys, self._task.peers, "a profile was written", alive)))

    def _tell(self, active: _Active, steps: int, tasks: Sequence[str], problems: Mapping[str, str]) -> None:
        answer: dict[str, Any] = {"number": active.order.number}
        if not tasks:
            answer["problem"] = next(iter(problems.values()), "no task has a profile")
        else:
            path = self._files.path(f"{_FOLDER}/{active.folder}")
            counted = {"first": active.first + 1, "steps": steps - active.first}
            answer.update(path=path, tasks=tasks, problems=problems, **counted)
            several = f"{len(tasks)} tasks" if len(tasks) > 1 else "1 task"
            self._reporter.notice(f"profiled steps {active.first + 1} to {steps} in {several}: {path}")
        self._watch.profiled(answer)
