"""What the pages show, read of a backend."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Final, cast

from launcher.backends.base import Backend, History
from launcher.backends.patience import Patience
from launcher.config.spec import RoleName
from launcher.report.amounts import duration
from launcher.report.curves import Curve, curves
from launcher.report.page_content import BADGES, Report, report
from launcher.run import Run
from launcher.status import RunStatus, latest
from launcher.task_records import record_sentences
from launcher.terminal import visible
from worker.contract.records import Progress

MOST_LINES: Final = 1_000
"""Of each pod's log."""

_SECONDS: Final = {"local": 2.0, "kubernetes": 5.0}
"""At least between two reads, by place: an API server is asked less often."""


class Place:
    """This machine (`local`), or the cluster (`kubernetes`). Reads wait for each other: together they ask a
    server no more than one command does.
    """

    def __init__(self, name: str, backend: Backend, patience: Patience) -> None:
        self.name = name
        self.seconds = _SECONDS[name]
        self._backend = backend
        self._patience = patience
        self._turn = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[Backend]:
        """Gives the backend to one reader at a time, each of whom has all of the patience."""
        with self._turn:
            self._patience.restart()
            yield self._backend


@dataclass(frozen=True)
class Address:
    """Where a run is. As a text it is a part of a page's path."""

    place: Place
    namespace: str
    run: str

    def __str__(self) -> str:
        return f"{self.place.name}/{self.namespace}/{self.run}"


@dataclass(frozen=True)
class ListedRun:
    """A line of the list; `key` is the run's address."""

    key: str
    name: str
    where: str
    badge: tuple[str, str]
    progress: str
    duration: str
    tasks: str
    submitted: str
    created: float


def all_runs(place: Place, namespace: str | None) -> Callable[[], Sequence[ListedRun]]:
    """Reads the runs of a place, or of one namespace there."""

    def read() -> Sequence[ListedRun]:
        with place.turn() as backend:
            statuses = backend.runs(namespace, progress=True)
            where = str(backend.place)
        return [_listed(status, Address(place, status.namespace, status.run), where) for status in statuses]

    return read


def _listed(status: RunStatus, address: Address, where: str) -> ListedRun:
    progress = latest(status.records, Progress)
    created = status.created or status.started or 0.0
    until = status.finished or time.time()
    return ListedRun(
        key=str(address),
        name=status.run,
        where=where if status.namespace == "default" else f"{where}, {status.namespace}",
        badge=BADGES[status.phase],
        progress="" if progress is None else record_sentences.position(progress),
        duration="" if status.started is None else duration(until - status.started),
        tasks=", ".join(f"{role.desired} {role.role}" for role in status.roles),
        submitted=f"{datetime.fromtimestamp(created):%Y-%m-%d %H:%M}" if created else "",
        created=created,
    )


@dataclass(frozen=True)
class Look:
    """A run as it was read."""

    history: History
    report: Report

    @cached_property
    def curves(self) -> Sequence[Curve]:
        """Without marks for restarts."""
        return curves(self.history.lines, ())


class RunReader:
    """Reads a run, and each time only what is new of it."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._histories: Iterator[History] | None = None
        self._last: Look | None = None

    def __call__(self) -> Look:
        """The run now; the same object for one that has ended, unless something has changed."""
        address, last = self._address, self._last
        with address.place.turn() as backend:
            # After an error it begins anew: the run may be another one of this name.
            histories, self._histories = self._histories, None
            histories = histories or backend.histories(address.run, address.namespace)
            history = next(histories)
            self._histories = histories
        if (
            last is None
            or not history.status.ended
            or replace(history, seen=last.history.seen) != last.history
        ):
            self._last = last = Look(history, report(history))
        return last


@dataclass(frozen=True)
class LogRow:
    """A line of a log; its `kind` is `record`, `pod` where another pod's lines begin, or nothing."""

    clock: str
    text: str
    kind: str = ""


def log(address: Address, task: str) -> Callable[[], Sequence[LogRow]]:
    """Reads the end of a task's log, with the records in words."""
    role, _, index = task.rpartition("-")

    def read() -> Sequence[LogRow]:
        with address.place.turn() as backend:
            run = Run(address.run, address.namespace, backend)
            lines = list(run.logs(cast("RoleName", role), int(index), tail=MOST_LINES))
        rows, attempt = [], 0
        for line in lines:
            if line.attempt != attempt:
                attempt = line.attempt
                rows.append(LogRow("", f"its pod number {attempt + 1}", "pod"))
            clock = f"{datetime.fromtimestamp(line.time):%H:%M:%S}" if line.time is not None else ""
            rows.append(LogRow(clock, visible(line.words or line.text), "record" if line.words else ""))
        return rows

    return read
