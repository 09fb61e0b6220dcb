"""History -> what the page shows, as text and percentages. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any, Final

from launcher import sentences
from launcher.backends.base import History
from launcher.lists_and_counts import counted, counted_role
from launcher.redaction import redacted_message
from launcher.report import drawing
from launcher.report.amounts import duration, number, rate
from launcher.report.curves import FROM_ZERO, GPU_USE, LOSS, SPEED, Curve, curves, last
from launcher.report.drawing import Chart, Tick, share
from launcher.report.events import ReportEvent, report_events, shortened
from launcher.report.processes import by_process
from launcher.report.restarts import Restart, restarts
from launcher.report.task_groups import grouped
from launcher.report.time_breakdown import TimeBreakdown, break_down
from launcher.report.timeline import (
    TaskTimeline,
    end_time,
    start_time,
    task_timelines,
    with_possible_times,
)
from launcher.report.timeline_rows import Legend, Row, legend, row
from launcher.status import Phase, RoleStatus, RunStatus
from launcher.task_records import bottlenecks, checkpoint_age, evaluator_outcome, task_devices
from launcher.task_records.presentation import State

BADGES: Final = {
    Phase.PENDING: ("plain", "Pending"),
    Phase.RUNNING: ("running", "Running"),
    Phase.SUSPENDED: ("warning", "Suspended"),
    Phase.SUCCEEDED: ("good", "Succeeded"),
    Phase.FAILED: ("bad", "Failed"),
    Phase.LOST: ("bad", "Lost"),
    Phase.BROKEN: ("bad", "Broken"),
}
"""The kind and the text of each phase's badge."""

_MOST_TABLE_ROWS: Final = 500
_MOST_LETTERS: Final = 60
"""Of a parameter, or of a command."""


@dataclass(frozen=True)
class Figure:
    """A number at the top of the page; `note` says what it is about."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Part:
    """A part of the bar that shows where the time went; `width` in percent."""

    state: str
    width: float
    amount: str
    percent: str
    text: str


@dataclass(frozen=True)
class Failure:
    """A task that made the run fail, with what it has said of it."""

    who: str
    how: str
    message: str
    traceback: str


@dataclass(frozen=True)
class EventRow:
    """An event of the run, as text: `at` is the time since the run began, `clock` the time of day."""

    at: str
    clock: str
    who: str
    kind: str
    text: str
    cluster: bool


@dataclass(frozen=True)
class Report:
    """Everything that the template prints."""

    run: str
    badge: tuple[str, str]
    ended: bool
    facts: tuple[str, ...]
    total: str
    remarks: tuple[str, ...]
    missing: tuple[str, ...]
    message: str
    failures: tuple[Failure, ...]
    troubles: tuple[str, ...]
    figures: tuple[Figure, ...]
    parts: tuple[Part, ...]
    rows: tuple[Row, ...]
    legend: tuple[Legend, ...]
    time_ticks: tuple[Tick, ...]
    charts: tuple[Chart, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    events: tuple[EventRow, ...]
    events_left_out: int
    seen: str


def report(history: History, zone: tzinfo | None = None) -> Report:
    """The report. Times of day are in `zone`, or in this machine's own if that is None."""
    history = by_process(with_possible_times(history))
    status = history.status
    tasks = task_timelines(history)
    again = restarts(tasks)
    begin, end = start_time(history), end_time(history)
    where = break_down(history, tasks, again)
    drawn = curves(history.lines, [restart for restart in again if tasks and restart.task is tasks[0]])
    events = report_events(history, tasks, again)
    shown = shortened(events)
    rows = tuple(row(group, begin, end, status) for group in grouped(tasks, end - begin))
    columns, values = _table(drawn)
    devices = task_devices.of_run(status)
    saved = checkpoint_age.of_run(status, history.seen)
    prechecked = sentences.prechecks(status)
    return Report(
        run=status.run,
        badge=BADGES[status.phase],
        ended=status.ended or status.finished is not None,
        facts=(
            *_facts(status, begin, zone),
            *_program(history.spec),
            *(text for _, text, bad in devices if not bad),
            *prechecked[:1],
            *([saved[0]] if saved is not None and not saved[1] else []),
        ),
        total=duration(where.total),
        remarks=(*where.remarks, *prechecked[1:], *filter(None, [_bottleneck(history)])),
        missing=(*history.missing, *_gaps(history, tasks)),
        message=status.message if status.phase not in (Phase.SUCCEEDED, Phase.SUSPENDED) else "",
        failures=_failures(status) if status.phase is not Phase.SUCCEEDED else (),
        troubles=(
            *filter(None, [evaluator_outcome.trouble(status)]),
            *(text for _, text, bad in devices if bad),
            *([saved[0]] if saved is not None and saved[1] else []),
        ),
        figures=_figures(history, where, drawn, again),
        parts=_parts(where),
        rows=rows,
        legend=legend(rows),
        time_ticks=tuple(drawing.time_ticks(end - begin)),
        charts=tuple(map(drawing.chart, drawn)),
        columns=columns,
        values=values,
        events=tuple(_event_row(event, begin, zone) for event in shown),
        events_left_out=len(events) - len(shown),
        seen=_clock(history.seen, zone, "%Y-%m-%d %H:%M:%S %Z"),
    )


def _bottleneck(history: History) -> str:
    records = [line.record for line in history.lines if line.record is not None]
    return sentences.bottleneck(bottlenecks.of_records(records), history.status)


def _clock(time: float, zone: tzinfo | None, form: str) -> str:
    return datetime.fromtimestamp(time, zone or datetime.now().astimezone().tzinfo).strftime(form).strip()


def _facts(status: RunStatus, begin: float, zone: tzinfo | None) -> tuple[str, ...]:
    tasks = ", ".join(map(_count, status.roles))
    return (
        f"namespace {status.namespace}",
        tasks,
        f"submitted {_clock(begin, zone, '%Y-%m-%d %H:%M:%S %Z')}",
    )


def _count(role: RoleStatus) -> str:
    """`1 chief`; of elastic workers how many there are to be now, and how many there may be."""
    text = counted_role(role.desired, role.role)
    return text if role.elastic is None else f"{text} ({role.elastic.min:,} to {role.elastic.max:,})"


def _program(spec: Mapping[str, Any]) -> list[str]:
    """What is trained, and how: the strategy, and the program with its parameters."""
    facts = [f"strategy {spec['strategy']}"] if "strategy" in spec else []
    program = spec.get("program") or {}
    if trained := program.get("entrypoint") or program.get("script"):
        facts.append(f"program {trained}")
    elif command := spec.get("command") or (spec.get("chief") or {}).get("command"):
        facts.append(f"command {_cut(shlex.join(map(str, command)))}")
    values = [f"{name} {_cut(_written(value))}" for name, value in (program.get("parameters") or {}).items()]
    return [redacted_message(text) for text in [*facts, *([", ".join(values)] if values else [])]]


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 3] + "..."


def _gaps(history: History, tasks: Sequence[TaskTimeline]) -> list[str]:
    """What the page cannot show, because the cluster has deleted it."""
    known = {(task.role, task.index) for task in tasks}
    begun = history.status.phase not in (Phase.PENDING, Phase.SUSPENDED)
    roles = history.status.roles
    gone = sum((role.role, index) not in known for role in roles for index in range(role.desired))
    if begun and history.status.ended and gone:
        return [f"The pods of {counted(gone, 'task')} have been deleted, so their times are not known."]
    return []


def _failures(status: RunStatus) -> tuple[Failure, ...]:
    failures: dict[tuple[str, str], Failure] = {}
    for task in status.failures:
        record = status.failure_record(task)
        message, traceback = (record.message, record.traceback) if record is not None else ("", "")
        name = sentences.who(task.role, task.index, status)
        # A program that cannot be imported fails alike in every role.
        failures.setdefault((message, traceback), Failure(name, sentences.ending(task), message, traceback))
    return tuple(failures.values())


def _figures(
    history: History, where: TimeBreakdown, drawn: Sequence[Curve], again: Sequence[Restart]
) -> tuple[Figure, ...]:
    status = history.status
    figures = [Figure("Duration" if status.finished is not None else "So far", duration(where.total))]
    trained = sum(part.seconds for part in where.shares if part.state in (State.TRAINING, State.RUNNING))
    if trained:
        figures.append(
            Figure("Training", f"{share(trained, where.total):.0f} %", f"{duration(trained)} of it")
        )
    named = {curve.name: curve for curve in drawn}
    metrics = [name for name in named if name not in (LOSS, *FROM_ZERO)]
    for name in [*metrics[:1], LOSS]:
        curve = named.get(name)
        for held_out, of_what in ((True, "evaluation"), (False, "training")):
            point = last(curve, held_out=held_out) if curve is not None else None
            if point is not None:
                figures.append(Figure(name, number(point.value), f"{of_what}, epoch {point.epoch:.3g}"))
                break
    if SPEED in named and (speed := last(named[SPEED], held_out=False)) is not None:
        figures.append(Figure("Steps per second", rate(speed.value), f"epoch {speed.epoch:.3g}"))
    if GPU_USE in named:
        values = [point.value for point in named[GPU_USE].series[0].points]
        figures.append(Figure("GPU use", f"{sum(values) / len(values):.0f} %", "mean of all GPUs"))
    if again:
        kinds = {
            "by a suspension or a move": sum(restart.stopped for restart in again),
            "in their pods": sum(restart.in_place for restart in again),
        }
        noted = [f"{count} {kind}" for kind, count in kinds.items() if count]
        note = f"of them {' and '.join(noted)}" if noted else "of all tasks"
        figures.append(Figure("Restarts", f"{len(again):,}", note))
    return tuple(figures)


def _parts(where: TimeBreakdown) -> tuple[Part, ...]:
    return tuple(
        Part(
            part.state.value,
            share(part.seconds, where.total),
            duration(part.seconds),
            _percent(share(part.seconds, where.total)),
            part.text,
        )
        for part in where.visible
    )


def _percent(value: float) -> str:
    return f"{value:.0f} %" if value >= 0.5 else "< 1 %"


def _table(drawn: Sequence[Curve]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """The charts' values: column names, and a row for each epoch."""
    columns: list[str] = []
    of_epoch: dict[float, dict[str, str]] = {}
    for curve in drawn:
        written = rate if curve.name in FROM_ZERO else number
        for series in curve.series:
            name = f"{curve.name}, evaluation" if series.held_out else curve.name
            columns.append(name)
            for point in series.points:
                of_epoch.setdefault(point.epoch, {})[name] = written(point.value)
    lines = [
        (f"{epoch:.4g}", *(values.get(name, "") for name in columns))
        for epoch, values in sorted(of_epoch.items())
    ]
    return tuple(columns), tuple(lines[-_MOST_TABLE_ROWS:])


def _event_row(event: ReportEvent, begin: float, zone: tzinfo | None) -> EventRow:
    return EventRow(
        f"{max(0.0, event.time - begin):,.1f} s",
        _clock(event.time, zone, "%H:%M:%S"),
        event.who,
        event.kind,
        event.text,
        event.cluster,
    )
