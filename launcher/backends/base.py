"""What every backend does, and the values that go in and out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from launcher.backends.log_selection import EVERYONE as EVERYONE
from launcher.backends.log_selection import Selection as Selection
from launcher.object_names import PROGRAM as PROGRAM
from worker.contract.records import Record

if TYPE_CHECKING:
    import socket
    from contextlib import AbstractContextManager

    from launcher.status import RunStatus, TaskStatus


@dataclass(frozen=True)
class Plan:
    """What a backend carries out. `objects` are Kubernetes' objects, the primary Job first. `addresses` are
    the tasks' `host:port`, as they appear in the objects.
    """

    run: str
    namespace: str
    objects: Sequence[dict[str, Any]]
    addresses: Sequence[str]
    as_jobset: Plan | None = None
    """The same run as one JobSet. A backend prefers it where the cluster has that kind; None if no queue of
    Kueue's admits the run.
    """


@dataclass(frozen=True)
class LogLine:
    """One line that a task printed, without the line end. `attempt` is the number of the task's pod, from 0.
    `record` is set if the line is a progress record. `time` is when it was printed, in seconds since the
    epoch: `logs` sets it if it is known, on this machine within a second.

    `words` are for a reader: a record as a sentence. Printed, a line is `worker-1 | text`, or what it says.
    """

    role: str
    index: int
    attempt: int
    text: str
    record: Record | None
    time: float | None = None
    words: str = ""

    def __str__(self) -> str:
        return f"{self.role}-{self.index} | {self.words or self.text}"


def log_lines(role: str, index: int, attempt: int, text: str, time: float | None = None) -> list[LogLine]:
    """Returns a line of a task's log as one, or as two where a record is behind what the program printed."""
    before, record = Record.split(text)
    printed = LogLine(role, index, attempt, before, None, time)
    if record is None:
        return [printed]
    recorded = LogLine(role, index, attempt, text[len(before) :], record, time)
    return [printed, recorded] if before else [recorded]


@dataclass(frozen=True)
class Update:
    """The run as it is now, and what its tasks have printed since the last update."""

    status: RunStatus
    lines: Sequence[LogLine]


@dataclass(frozen=True)
class RunEvent:
    """An event of the cluster about one of the run's objects. It has occurred `count` times, the last time at
    `time`, in seconds since the epoch. `about` is a task, as `worker 1`, or another object, as `Job
    mnist-worker`.
    """

    time: float
    about: str
    warning: bool
    reason: str
    message: str
    count: int


@dataclass(frozen=True)
class History:
    """A run's past, as far as it is known at the time `seen`. All times are seconds since the epoch, by this
    machine's clock. `submitted` is None if it is not known.

    `attempts` are all pods of the tasks, by task, oldest first. `lines` are the records that they have
    printed, `events` those of the cluster, oldest first. `missing` has a sentence for each thing that could
    not be read. `spec` is the file's, without fields that have their defaults; empty if it is not known.
    """

    status: RunStatus
    seen: float
    submitted: float | None
    attempts: Sequence[TaskStatus]
    lines: Sequence[LogLine]
    events: Sequence[RunEvent] = ()
    missing: Sequence[str] = ()
    spec: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """One thing that a run needs of a cluster. The verdict is `ok`, `missing` (a run cannot be submitted or
    carried out), `warning` (it may not start, or works in part), or `unknown`. `message` says what was found,
    `advice` what to do.
    """

    subject: str
    verdict: Literal["ok", "missing", "warning", "unknown"]
    message: str
    advice: str = ""


@dataclass(frozen=True)
class Place:
    """Where runs are: this machine, or the cluster of a kubeconfig's `context`, "" for none."""

    backend: Literal["local", "kubernetes"]
    context: str = ""

    def __str__(self) -> str:
        if self.backend == "local":
            return "this machine"
        return f"context {self.context}" if self.context else "this cluster"


class Board(Protocol):
    """A run's TensorBoard, at `url` on this machine until it is closed; a context manager that closes it."""

    url: str

    def wait(self) -> None:
        """Waits until it is closed. Raises BackendError if it ends by itself."""

    def close(self) -> None:
        """Ends it, or the tunnel to it. Closing it twice is no error."""

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Backend(Protocol):
    """Every method but `submit` and `runs` raises NotFoundError for a run that is not there, and all
    raise BackendError when what runs the tasks cannot be reached or refuses.
    """

    @property
    def namespace(self) -> str:
        """The namespace to use where none is given."""

    def options(self, namespace: str) -> str:
        """The options with which a command finds a run here, such as ` -n vision`; "" if it needs none."""

    @property
    def place(self) -> Place:
        """Where its runs are."""

    def prepare(self) -> None:
        """Starts in the background what the next `submit` will need, if that takes time. It need not be
        undone.
        """

    def submit(self, plan: Plan, *, detach: bool, replace: bool = False, owners: Sequence[str] = ()) -> str:
        """Starts the run and returns at once. Returns sentences for the user, such as what this backend
        ignores.

        A run that is not detached ends when this process does. Raises ConflictError if the name is in use.
        With `replace` the run that has the name is ended first, and the new one gets its model directory.
        `owners`, each `kind/name`, are objects of the cluster that own the run from then on.
        """

    def dry_run(self, plan: Plan, *, replace: bool = False) -> list[str]:
        """What `submit` would do to each object, by the server's own check. Raises what `submit` raises."""

    def examine(self, namespace: str, objects: Sequence[Mapping[str, Any]] | None = None) -> list[Finding]:
        """Checks what a run with these `objects` needs, or any run if they are None."""

    def status(self, run: str, namespace: str) -> RunStatus:
        """The run as it is now."""

    def runs(self, namespace: str | None, *, progress: bool = False) -> list[RunStatus]:
        """All runs, or one namespace's, by namespace and name. `progress`: with the records of how far those
        are that run.
        """

    def names(self, namespace: str) -> list[str]:
        """The runs of a namespace by name, without how they are: for who waits at a key."""

    def follow(self, run: str, namespace: str) -> Iterator[Update]:
        """Yields updates until the run has ended and its logs are read: some each second, even if nothing has
        changed. The last one has a status that has ended. The caller may stop at any time.
        """

    def logs(self, run: str, namespace: str, selection: Selection, *, follow: bool) -> Iterator[LogLine]:
        """What the tasks have printed, task by task; then, with `follow`, what they print until the run
        has ended.
        """

    def events(self, run: str, namespace: str, *, follow: bool) -> Iterator[RunEvent]:
        """What the cluster says about the run's objects, oldest first; with `follow`, also new ones until the
        run has ended. Raises BackendError where there are no events.
        """

    def tensorboard(self, run: str, namespace: str, port: int = 0) -> Board:
        """The run's TensorBoard on a loopback port, 0 for any that is free, once it answers. Raises
        ConflictError where the run has nothing for it to show.
        """

    def copy(self, run: str, namespace: str, path: str, target: str, seconds: float) -> Path:
        """Copies the file or folder at `path` below the run's model directory, "" for all of it, to `target`
        on this machine: under its own name, where that is a folder. Returns what was written, which is whole
        or not there. Where something must come up first, it has so many seconds.

        Raises SpecError for a path that leads out of the directory, ConflictError where the run has no such
        file or the target is there already, and BackendError where it cannot be written.
        """

    def history(self, run: str, namespace: str) -> History:
        """The run's past, from its submission until now."""

    def histories(self, run: str, namespace: str) -> Iterator[History]:
        """Yields the run's past again and again, each time until now, and does not wait. What was read
        of a log is not read again. The caller may stop at any time.
        """

    def suspend(self, run: str, namespace: str) -> None:
        """Stops the tasks, to be started again by `resume`. Raises ConflictError after the run's end."""

    def resume(self, run: str, namespace: str) -> str:
        """Undoes `suspend`. Returns what the user should know. Raises ConflictError after the run's end."""

    def scale(self, run: str, namespace: str, workers: int, role: str = "worker") -> int:
        """Changes the number of an elastic run's workers while it runs, or of the tasks of another role of
        `scalable_roles.SCALABLE`. Returns the number before. Raises ConflictError where the role's number is
        fixed, the run may not have that many, is suspended or has ended, or was scaled by somebody else
        meanwhile.
        """

    def kill(self, run: str, namespace: str, task: str) -> None:
        """Ends the process of a task, such as `worker-1`, by SIGKILL: for its Job it has failed. Raises
        NotFoundError for a task that the run does not have, ConflictError for one that does not run.
        """

    def supervisor(self, run: str, namespace: str, task: TaskStatus) -> AbstractContextManager[socket.socket]:
        """A connection to the supervisor of a task that runs, for an order: see `worker.contract.orders`.
        Raises BackendError where it cannot be reached.
        """

    def stop(self, run: str, namespace: str, *, at_once: bool) -> None:
        """Makes the run fail, and keeps its objects and logs. Returns before it has ended. With `at_once` the
        tasks get no grace period.
        """

    def places(self, run: str, namespace: str) -> Mapping[str, str]:
        """Where the results of the run are, for its summary: `{"model directory": ..., "logs": ...}`."""

    def clean(self, run: str, namespace: str) -> str:
        """Deletes what the run's cleanPolicy says, after the run has ended and its summary was printed.
        Returns what to tell the user.
        """

    def delete(self, run: str, namespace: str) -> str:
        """Stops the run, if it goes on, and deletes everything that belongs to it. Returns what is kept, and
        how to delete it.
        """

    def claims_to_delete(self, run: str, namespace: str) -> list[str]:
        """The claims that `delete` would remove with what is on them, also where nothing else of the run is
        left; none where there is no such run.
        """
