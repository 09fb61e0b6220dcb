"""Which page is at which path, and what it shows."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from launcher.backends.base import PROGRAM
from launcher.backends.checked_names import check_names
from launcher.errors import NotFoundError, SpecError
from launcher.object_names import ROLES
from launcher.report import drawing
from launcher.report.curves import Curve
from launcher.report.drawing import Chart
from launcher.report.page import rendered
from launcher.ui import reads
from launcher.ui.reads import Address, Look, Place
from launcher.ui.shared_read import Known, SharedRead

MOST_COMPARED: Final = 8
"""Runs whose curves share charts: ui.css has so many colours."""

_MOST_LOGS: Final = 100
"""Tasks of one row of the timeline whose logs are linked."""

_TASK: Final = re.compile(rf"({'|'.join(ROLES)})-[0-9]{{1,9}}")

_HOME: Final = {"All runs": ""}
"""A link by its path."""

_KEPT: Final = 300.0
"""Seconds for which is kept what nobody asks for."""

_WAIT: Final = 1.0
"""Seconds for reads to end. A page shows what is known then."""

_Known = Sequence[Known[Any]]


@dataclass(frozen=True)
class Answer:
    """A page, HTTP's status for it, and after how many seconds it may be another one."""

    status: int
    page: str
    every: float


@dataclass(frozen=True)
class Compared:
    """One of several runs whose curves share charts; `hue` is the class of its colour."""

    key: str
    name: str
    hue: str
    look: Look | None


class Site:
    """The pages below the path `root`: of these places, and of one `namespace` if that is given."""

    def __init__(self, places: Sequence[Place], root: str, namespace: str | None = None) -> None:
        self._places = {place.name: place for place in places}
        self._root = root
        self._namespace = namespace
        self._lock = threading.Lock()
        self._reads: dict[str, SharedRead[Any]] = {}
        self._pages: dict[str, tuple[_Known, str]] = {}

    def answer(self, path: Sequence[str], query: Mapping[str, Sequence[str]]) -> Answer | None:
        """The page at a path below the root; None where there is none."""
        if not path:
            return self._list()
        if path == ["curves"]:
            chosen = [self._address(key.split("/")) for key in dict.fromkeys(query.get("run", ()))]
            return self._curves([address for address in chosen if address is not None])
        address = self._address(path[1:4])
        if path[0] != "runs" or address is None:
            return None
        if len(path) == 4:
            return self._run(address)
        if len(path) == 6 and path[4] == "logs" and _TASK.fullmatch(path[5]):
            return self._log(address, path[5])
        return None

    def _address(self, parts: Sequence[str]) -> Address | None:
        if len(parts) != 3 or parts[0] not in self._places:
            return None
        place, namespace, run = parts
        try:
            check_names(namespace, run)
        except SpecError:
            return None
        return Address(self._places[place], namespace, run)

    def _list(self) -> Answer:
        names = {"local": "this machine", "kubernetes": "the cluster"}

        def make(known: _Known) -> str:
            runs = sorted((run for each in known for run in each.value or ()), key=lambda run: -run.created)
            whose = zip(known, self._places, strict=True)
            notices = [_notice(each, f"The list of {names[place]}") for each, place in whose]
            return self._page("ui_runs.html.j2", "Runs", notices, runs=runs, trail={})

        reads_of = [
            self._read(f"list {place.name}", place, partial(reads.all_runs, place, self._namespace))
            for place in self._places.values()
        ]
        return self._answer("list", reads_of, make)

    def _run(self, address: Address) -> Answer:
        def make(known: _Known) -> str:
            (run,), name = known, f"Run {address.run}"
            if run.value is None:
                return self._page("ui_message.html.j2", name, [_notice(run, name)])
            shown = run.value.report
            values = {"report": shown, "path": f"{self._root}/runs/{address}", "most_logs": _MOST_LOGS}
            title = f"{address.run} · {shown.badge[1]}"
            return self._page("ui_run.html.j2", title, [_notice(run, name)], **values)

        return self._answer(f"run {address}", [self._reader(address)], make)

    def _log(self, address: Address, task: str) -> Answer:
        def make(known: _Known) -> str:
            (log,) = known
            values = {
                "task": task,
                "lines": log.value or (),
                "most": reads.MOST_LINES,
                "command": f"{PROGRAM} logs {address.run} {task} -n {address.namespace}",
                "follow": True,
                "trail": {**_HOME, f"Run {address.run}": f"runs/{address}"},
            }
            return self._page(
                "ui_log.html.j2", f"{address.run} · {task}", [_notice(log, "The log")], **values
            )

        key = f"log {address} {task}"
        return self._answer(key, [self._read(key, address.place, partial(reads.log, address, task))], make)

    def _curves(self, addresses: Sequence[Address]) -> Answer:
        chosen = addresses[:MOST_COMPARED]
        names = [address.run for address in chosen]

        def make(known: _Known) -> str:
            notices, runs = [], []
            for number, (address, each) in enumerate(zip(chosen, known, strict=True), 1):
                name = address.run if names.count(address.run) == 1 else str(address)
                runs.append(Compared(str(address), name, f" hue-{number}", each.value))
                notices.append(_notice(each, f"Run {name}"))
            if len(chosen) < len(addresses):
                notices.append(f"These are the first {MOST_COMPARED} of {len(addresses)} runs.")
            ended = all(run.look is not None and run.look.report.ended for run in runs)
            # All that the report's template needs for its charts.
            shown = {"charts": _laid_over(runs), "ended": ended}
            return self._page("ui_curves.html.j2", "Curves", notices, runs=runs, report=shown)

        key = f"curves {' '.join(map(str, addresses))}"
        return self._answer(key, [self._reader(address) for address in chosen], make)

    def _reader(self, address: Address) -> SharedRead[Look]:
        return self._read(f"run {address}", address.place, partial(reads.RunReader, address))

    def _read(self, key: str, place: Place, reader: Callable[[], Callable[[], Any]]) -> SharedRead[Any]:
        """The read of this key; `reader` makes it. What nobody asks for is forgotten."""
        with self._lock:
            oldest = time.monotonic() - _KEPT
            for other in [other for other, each in self._reads.items() if each.asked < oldest]:
                del self._reads[other]
                self._pages.clear()
            if key not in self._reads:
                self._reads[key] = SharedRead(reader(), place.seconds)
            return self._reads[key]

    def _answer(self, key: str, reads_of: Sequence[SharedRead[Any]], make: Callable[[_Known], str]) -> Answer:
        """The page that is made of what is known: once, however many look."""
        until = time.monotonic() + _WAIT
        known = [read.known(max(0.0, until - time.monotonic())) for read in reads_of]
        made = self._pages.get(key)
        if made is None or any(one is not other for one, other in zip(made[0], known, strict=True)):
            made = self._pages[key] = (known, make(known))
        missing = len(known) == 1 and known[0].value is None and isinstance(known[0].error, NotFoundError)
        return Answer(404 if missing else 200, made[1], min((read.every for read in reads_of), default=_KEPT))

    def _page(self, template: str, title: str, notices: Sequence[str], **values: Any) -> str:
        shown_notices = [notice for notice in notices if notice]
        common = {
            "root": self._root,
            "title": title,
            "notices": shown_notices,
            "trail": _HOME,
            "follow": False,
        }
        return rendered(template, **{**common, **values})


def _notice(known: Known[Any], what: str) -> str:
    """Why the page is not what is now; "" where it is."""
    error = known.error
    if error is None:
        return "" if known.value is not None else f"{what} is being read."
    then = f"What is shown was known at {datetime.fromtimestamp(known.at):%H:%M:%S}."
    if isinstance(error, NotFoundError):
        return f"{error.message}." if known.value is None else f"{error.message}. {then}"
    if known.value is None:
        return f"{what} cannot be read: {error.message}. {error.hint}".strip()
    return f"{what} cannot be read now: {error.message}. {then}"


def _laid_over(runs: Sequence[Compared]) -> list[Chart]:
    """A chart for each curve that one of the runs has, with the lines of all that have it."""
    curves: dict[str, Curve] = {}
    for run in runs:
        for curve in run.look.curves if run.look is not None else ():
            lines = tuple(
                replace(
                    series,
                    name=f"{run.name}, {series.name}" if series.held_out else run.name,
                    hue=run.hue,
                )
                for series in curve.series
            )
            before = curves.get(curve.name, Curve(curve.name, (), ()))
            curves[curve.name] = replace(before, series=(*before.series, *lines))
    return [drawing.chart(curve) for curve in curves.values()]
