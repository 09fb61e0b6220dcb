"""Shows runs and tasks, one line each, once or again at each change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from launcher import sentences
from launcher.backends.base import Place, RunEvent, Update
from launcher.cli.console import STYLES, UNBOUNDED, console, live_table, reasons
from launcher.object_names import DOMAIN
from launcher.status import RunStatus, latest
from launcher.task_records import record_sentences
from launcher.terminal import visible_all
from worker.contract.records import Progress

_LIST_SECONDS: Final = 2.0
"""Between two looks at all runs."""
_CHANGE_SECONDS: Final = 1.0
"""At most one line of a run in so long, where a program reads them."""
_REPAINT_SECONDS: Final = 0.25
_EVENTS: Final = 10
_OURS: Final = (f"{DOMAIN}/", "app.kubernetes.io/")
"""The prefixes of the launcher's own labels."""


class Listed(NamedTuple):
    """A run, and its place."""

    status: RunStatus
    place: Place


def show_list(
    runs: Sequence[Listed], *, wide: bool = False, places: bool = False, out: Console | None = None
) -> None:
    """Prints what the `list` command shows. With `places`, each line names the run's place."""
    out = out or console()
    if not runs:
        out.print("no runs")
        return
    if not out.is_terminal:
        # Lines must not be folded: scripts search them for names.
        out.width = UNBOUNDED
    out.print(_table(runs, wide=wide, places=places, on_terminal=out.is_terminal))


def watch_list(
    gather: Callable[[], Sequence[Listed]],
    *,
    wide: bool = False,
    places: bool = False,
    out: Console | None = None,
) -> None:
    """Shows the list until Ctrl-C: a terminal is redrawn, elsewhere a line is printed for each new or changed
    run.
    """
    out = out or console()
    if out.is_terminal:
        with Live(console=out, auto_refresh=False, redirect_stdout=False) as live:
            while True:
                live.update(_table(gather(), wide=wide, places=places, on_terminal=True), refresh=True)
                time.sleep(_LIST_SECONDS)
    lines = _ChangedLines(wide, places)
    while True:
        _print_all(lines.of(gather()), out)
        time.sleep(_LIST_SECONDS)


def repeated(gather: Callable[[], Sequence[Listed]]) -> Iterator[Sequence[Listed]]:
    """Yields the runs whenever one of them has changed, until Ctrl-C."""
    before: Sequence[Listed] | None = None
    while True:
        runs = gather()
        if runs != before:
            yield runs
        before = runs
        time.sleep(_LIST_SECONDS)


def watch_run(
    updates: Iterable[Update], place: Place, *, wide: bool = False, out: Console | None = None
) -> RunStatus | None:
    """Shows a run until it ends: a terminal is redrawn, elsewhere a line is printed for each change. Returns
    its last status.
    """
    out = out or console()
    status: RunStatus | None = None
    if not out.is_terminal:
        lines = _ChangedLines(wide, False)
        for status in changes(updates):
            _print_all(lines.of([Listed(status, place)]), out)
        return status
    painted = 0.0
    with Live(console=out, auto_refresh=False, transient=True, redirect_stdout=False) as live:
        for update in updates:
            status = update.status
            if time.monotonic() - painted >= _REPAINT_SECONDS:
                painted = time.monotonic()
                shown = visible_all(status, True)
                parts: list[RenderableType] = [live_table(shown, reasons(shown))]
                live.update(Group(*parts, *([task_table(shown)] if wide else [])), refresh=True)
    return status


def changes(updates: Iterable[Update]) -> Iterator[RunStatus]:
    """Yields the first status, those that differ from the one before, at least a second apart,
    and the last.
    """
    before: RunStatus | None = None
    due = 0.0
    status: RunStatus | None = None
    for update in updates:
        status = update.status
        if status is not before and (before is None or time.monotonic() >= due):
            before, due = status, time.monotonic() + _CHANGE_SECONDS
            yield status
    if status is not None and status is not before:
        yield status


def task_table(status: RunStatus) -> Table:
    """Returns the table of `-o wide` and `describe`: each task and its latest pod."""
    table = _empty(("TASK", "STATE", "RESTARTS", "EXIT CODE", "AGE", "NODE", "POD"))
    for task in status.tasks:
        state = f"{task.phase} ({task.reason})" if task.reason else str(task.phase)
        code = "" if task.exit_code is None else str(task.exit_code)
        again = sentences.restarts(task.restarts, status.restarts_in_place(task.role, task.index))
        cells = (f"{task.role}-{task.index}", Text(state, style=STYLES[task.phase]), again, code)
        table.add_row(*cells, age(task.created), task.node, task.pod)
    return table


def show_tasks(status: RunStatus) -> None:
    """Prints the table."""
    out = console()
    if status.tasks:
        if not out.is_terminal:
            out.width = UNBOUNDED
        out.print()
        out.print(task_table(visible_all(status, out.is_terminal)))


def show_facts(status: RunStatus, place: Place) -> None:
    """Prints the first lines of `describe`."""
    out = console()
    status = visible_all(status, out.is_terminal)
    labels = _own_labels(status)
    because = ": ".join(filter(None, (status.reason, status.message)))
    facts = {
        "name": status.run,
        "namespace": status.namespace,
        "where": str(place),
        "labels": labels or "none",
        "state": f"{status.phase} ({because})" if because else str(status.phase),
        "submitted": _moment(status.created),
        "started": _moment(status.started),
        "ended": _moment(status.finished),
        "duration": _duration(status),
    }
    for name, text in facts.items():
        if text:
            out.print(Text.assemble((f"{name:<12} ", "dim"), text))


def show_events(events: Sequence[RunEvent]) -> None:
    """Prints the latest events, oldest first."""
    out = console()
    if events:
        out.print()
        out.print(Text(f"events (the last {len(events[-_EVENTS:])})", style="dim"))
    for event in events[-_EVENTS:]:
        out.print(Text(sentences.event(visible_all(event, out.is_terminal))))


def age(since: float | None) -> str:
    """Returns an age as kubectl does: `45s`, `12m`, `3h20m`, `5d`; "" where it is unknown."""
    return "" if since is None else _short(time.time() - since)


def _short(seconds: float) -> str:
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return f"{minutes}m{whole % 60}s" if whole % 60 else f"{minutes}m"
    if hours < 2:
        return f"{minutes}m"
    if hours < 10:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{hours}h" if days < 2 else f"{days}d"


def _duration(status: RunStatus) -> str:
    if status.started is None:
        return ""
    return _short((status.finished or time.time()) - status.started)


def _moment(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(seconds))} ({age(seconds)} ago)"


def _own_labels(status: RunStatus) -> str:
    labels = ((name, value) for name, value in status.labels.items() if not name.startswith(_OURS))
    return ",".join(f"{name}={value}" for name, value in labels)


def _headings(wide: bool, places: bool) -> list[str]:
    names = ["NAMESPACE", "RUN", "STATE", "PROGRESS", "TASKS", "AGE", "DURATION"]
    return [*names, *(["WHERE"] if places or wide else []), *(["STARTED", "LABELS"] if wide else [])]


def _cells(run: Listed, wide: bool, places: bool) -> list[str]:
    status = run.status
    progress = latest(status.records, Progress)
    tasks = ", ".join(f"{role.desired} {role.role}" for role in status.roles)
    cells = [
        status.namespace,
        status.run,
        str(status.phase),
        "" if progress is None else record_sentences.position(progress),
        tasks,
        age(status.created or status.started),
        _duration(status),
    ]
    if places or wide:
        cells.append(str(run.place))
    if wide:
        started = time.localtime(status.started) if status.started else None
        cells += [time.strftime("%Y-%m-%d %H:%M:%S", started) if started else "", _own_labels(status)]
    return cells


def _table(runs: Sequence[Listed], *, wide: bool, places: bool, on_terminal: bool) -> Table:
    table = _empty(_headings(wide, places))
    for run in runs:
        namespace, name, _, *rest = visible_all(_cells(run, wide, places), on_terminal)
        table.add_row(namespace, name, Text(str(run.status.phase), style=STYLES[run.status.phase]), *rest)
    return table


def _empty(headings: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


class _ChangedLines:
    """Prints a heading, and then a line for each new or changed run; columns only grow wider."""

    def __init__(self, wide: bool, places: bool) -> None:
        self._wide = wide
        self._places = places
        self._widths: list[int] = []
        self._before: dict[tuple[str, str, str], list[str]] = {}

    def of(self, runs: Sequence[Listed]) -> list[str]:
        """Returns the lines to print."""
        rows = []
        headings = _headings(self._wide, self._places)
        seen = {}
        for run in runs:
            cells = _cells(run, self._wide, self._places)
            key = (str(run.place), run.status.namespace, run.status.run)
            # Ages change without a change of the run.
            seen[key] = [
                cell for cell, name in zip(cells, headings, strict=True) if name not in ("AGE", "DURATION")
            ]
            if self._before.get(key) != seen[key]:
                rows.append(cells)
        gone = [self._before[key] for key in self._before if key not in seen]
        self._before = seen
        if not self._widths and (rows or not runs):
            self._widths = [len(heading) for heading in headings]
            rows.insert(0, headings)
        rows += [[cells[0], cells[1], "Deleted", *[""] * (len(headings) - 3)] for cells in gone]
        columns = zip(self._widths, *rows, strict=True)
        self._widths = [max([width, *map(len, cells)]) for width, *cells in columns]
        return ["   ".join(map(str.ljust, cells, self._widths)).rstrip() for cells in rows]


def _print_all(lines: Iterable[str], out: Console) -> None:
    for line in lines:
        out.print(Text(line))
    out.file.flush()
