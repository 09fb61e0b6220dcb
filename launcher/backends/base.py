"""What every backend does."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from launcher.naming import SPEC_ANNOTATION

if TYPE_CHECKING:
    from launcher.status import RunStatus, TaskStatus
    from worker.contract import Record

PROGRAM: Final = "python -m launcher"
"""How a message tells the user to call this program: it works wherever the package does."""


def submitted(item: dict[str, Any], *path: str) -> Any:
    """What the file of the run says at this path, and without one all of it, as the primary Job, or JobSet,
    carries it: without fields that have their defaults. None where it says nothing, or nothing is carried.
    """
    try:
        value = json.loads((item["metadata"].get("annotations") or {})[SPEC_ANNOTATION])
        for name in path:
            value = value[name]
    except (LookupError, ValueError, TypeError):
        return None
    return value


def clean_policy(job: dict[str, Any]) -> str:
    """What of the run is stopped or deleted once it has ended: the spec's cleanPolicy."""
    return str(submitted(job, "spec", "runPolicy", "cleanPolicy") or "Running")


@dataclass(frozen=True)
class Plan:
    """What is to be carried out. `objects` are Kubernetes', the primary Job first; `addresses` are the
    tasks' `host:port`, as they stand in the objects.
    """

    run: str
    namespace: str
    objects: Sequence[dict[str, Any]]
    addresses: Sequence[str]
    as_jobset: Plan | None = None
    """The same run as one JobSet, which is better where a queue admits it and the cluster knows the kind."""


@dataclass(frozen=True)
class Selection:
    """Whose logs; an empty collection means all. `since`: of the last so many seconds only, where the backend
    knows when a line was written; `previous`: of the pods that a task had before its latest one only.
    """

    roles: Collection[str] = ()
    indexes: Collection[int] = ()
    since: float | None = None
    previous: bool = False

    def __contains__(self, task: object) -> bool:
        if not isinstance(task, tuple):
            return False
        role, index = task
        return (not self.roles or role in self.roles) and (not self.indexes or index in self.indexes)


EVERYONE = Selection()


@dataclass(frozen=True)
class LogLine:
    """One line that a task printed, without its end. `attempt` counts the task's pods from 0; `record`
    is set where the line is one.
    """

    role: str
    index: int
    attempt: int
    text: str
    record: Record | None


@dataclass(frozen=True)
class Update:
    """The run as it is now, and what its tasks have printed since the last update."""

    status: RunStatus
    lines: Sequence[LogLine]


@dataclass(frozen=True)
class RunEvent:
    """Something that a cluster has said about one of a run's objects, for the `count`-th time at `time`,
    seconds since the epoch. `about` is a task, as `worker 1`, or another object, as `Job mnist-worker`.
    """

    time: float
    about: str
    warning: bool
    reason: str
    message: str
    count: int


@dataclass(frozen=True)
class History:
    """A run's past, as far as it is still known at `seen`. All times are seconds since the epoch, by this
    machine's clock; `submitted` is None where nobody knows.

    `attempts` is every pod that the tasks have had, by task, oldest first; `lines` are the records among
    what they have printed, and `events` what a cluster has said, oldest first. `missing` says what could not
    be read, a sentence each.
    """

    status: RunStatus
    seen: float
    submitted: float | None
    attempts: Sequence[TaskStatus]
    lines: Sequence[LogLine]
    events: Sequence[RunEvent] = ()
    missing: Sequence[str] = ()


@dataclass(frozen=True)
class Finding:
    """One thing that a run needs of a cluster: `ok`, `missing` (a run cannot be submitted or carried out),
    `warning` (it may not start, or something is lost), or `unknown`. `message` says what was found, `advice`
    what to do.
    """

    subject: str
    verdict: Literal["ok", "missing", "warning", "unknown"]
    message: str
    advice: str = ""


class Board(Protocol):
    """A run's TensorBoard, at `url` on this machine until it is closed; a context manager that closes it."""

    url: str

    def wait(self) -> None:
        """Returns when it was closed. Raises BackendError when it has ended by itself."""

    def close(self) -> None:
        """Ends it, or the tunnel that leads to it. A second time does nothing."""

    def __enter__(self) -> Board: ...

    def __exit__(self, *_: object) -> None: ...


class Backend(Protocol):
    """Every method but `submit` and `runs` raises NotFoundError for a run that is not there, and all
    raise BackendError when what runs the tasks cannot be reached or refuses.
    """

    @property
    def namespace(self) -> str:
        """The one that is meant where none is given."""

    def options(self, namespace: str) -> str:
        """What a command needs behind a run's name to find it here again, such as ` -n vision`; "" where it
        needs nothing.
        """

    def prepare(self) -> None:
        """Begins with what the next `submit` will need, where that takes time; the caller then goes on to
        read its file. Needs no undoing.
        """

    def submit(self, plan: Plan, *, detach: bool, replace: bool = False, owners: Sequence[str] = ()) -> str:
        """Starts the run and returns at once. What the backend leaves out is named in the text returned.

        A run that is not detached ends when this process does. Raises ConflictError when the name is in
        use; with `replace` the run that has it is ended first, and the new one finds its model directory.
        `owners`, each `kind/name`, are objects of a cluster of which the run becomes a part.
        """

    def dry_run(self, plan: Plan, *, replace: bool = False) -> list[str]:
        """What `submit` would do to each object, as the server says. Raises what `submit` would."""

    def examine(self, namespace: str, objects: Sequence[Mapping[str, Any]] | None = None) -> list[Finding]:
        """Checks all that a run with these `objects`, or any run, needs. Returns the findings."""

    def status(self, run: str, namespace: str) -> RunStatus:
        """The run as it is now."""

    def runs(self, namespace: str | None) -> list[RunStatus]:
        """All runs, or one namespace's, by namespace and name."""

    def follow(self, run: str, namespace: str) -> Iterator[Update]:
        """Updates until the run has ended and all is read: at least some a second, changed or not, the
        last with a status that has ended. The caller may stop at any time.
        """

    def logs(self, run: str, namespace: str, selection: Selection, *, follow: bool) -> Iterator[LogLine]:
        """What the tasks have printed, task by task; then, with `follow`, what they print until the run
        has ended.
        """

    def events(self, run: str, namespace: str, *, follow: bool) -> Iterator[RunEvent]:
        """What the cluster says about the run's objects, oldest first; with `follow`, what it says until the
        run has ended. Raises BackendError where nobody says anything.
        """

    def tensorboard(self, run: str, namespace: str, port: int = 0) -> Board:
        """The run's TensorBoard on a loopback port, 0 for any that is free, once it answers. Raises
        ConflictError where the run has nothing for it to show.
        """

    def history(self, run: str, namespace: str) -> History:
        """The run's past, from its submission until now."""

    def suspend(self, run: str, namespace: str) -> None:
        """Stops the tasks, to be started again by `resume`. Raises ConflictError after the run's end."""

    def resume(self, run: str, namespace: str) -> None:
        """Undoes `suspend`. Raises ConflictError after the run's end."""

    def stop(self, run: str, namespace: str, *, at_once: bool) -> None:
        """Ends the run as failed; its record stays. Returns before it has ended. `at_once` leaves the tasks
        no grace.
        """

    def places(self, run: str, namespace: str) -> Mapping[str, str]:
        """Where to find what the run leaves, for its summary: `{"model directory": ..., "logs": ...}`."""

    def clean(self, run: str, namespace: str) -> str:
        """Removes what the run's own policy wants gone once it has ended and its summary was read. Returns
        what to tell the user.
        """

    def delete(self, run: str, namespace: str) -> str:
        """Stops the run, if need be, and removes all that is the run's. Returns what stays, and how to be
        rid of it.
        """
