"""Records -> the training's curves: loss, metrics and speed over the epochs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from launcher.backends.base import LogLine
from launcher.report.restarts import Restart
from worker.contract import Event, Record

_MOST_POINTS: Final = 240
_MOST_CHARTS: Final = 24
_MOST_EPOCHS: Final = 1e9
_LARGEST: Final = 1e100

LOSS: Final = "loss"
SPEED: Final = "steps per second"


@dataclass(frozen=True)
class Point:
    """A value after `epoch` epochs, which need not be whole."""

    epoch: float
    value: float


@dataclass(frozen=True)
class Series:
    """Of the training, or of an evaluation (`held_out`)."""

    name: str
    held_out: bool
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Curve:
    """One chart. `restarts` are epochs at which the primary had to begin again."""

    name: str
    series: tuple[Series, ...]
    restarts: tuple[float, ...]


def curves(lines: Iterable[LogLine], restarts: Sequence[Restart]) -> list[Curve]:
    """Loss first, then the metrics by name, then steps per second. What was trained again counts once."""
    records = sorted((line.record for line in lines if line.record is not None), key=lambda r: r.time)
    progress = [record for record in records if record.event == Event.PROGRESS]
    trained = _by_epoch(progress, _trained)
    scored = _series((record for record in records if record.event == Event.EVALUATION), _scored)
    speed = _by_epoch(progress, _speed)
    names = [LOSS, *sorted({*trained, *scored} - {LOSS})]
    breaks = _breaks(progress, restarts)
    found = []
    for name in names[:_MOST_CHARTS]:
        pair = [Series("training", False, trained[name])] if name in trained else []
        pair += [Series("evaluation", True, scored[name])] if name in scored else []
        if pair:
            found.append(Curve(name, tuple(pair), breaks))
    if SPEED in speed:
        found.append(Curve(SPEED, (Series("training", False, speed[SPEED]),), breaks))
    return found


def last(curve: Curve, *, held_out: bool) -> Point | None:
    """The last point of the curve's training or evaluation."""
    points = [series.points[-1] for series in curve.series if series.held_out is held_out]
    return points[0] if points else None


def position(record: Record) -> float | None:
    """Epochs that were done at a progress record: 2.5 in the middle of the third."""
    fields = record.fields
    epoch = _epoch(fields.get("epoch"))
    step, steps = _number(fields.get("step")), _number(fields.get("steps"))
    if epoch is None or fields.get("epoch_end"):
        return epoch
    if step is not None and steps is not None and 0 < step <= steps:
        return epoch - 1 + step / steps
    return None


def _number(value: Any) -> float | None:
    """None unless it is a finite number: any program can print a line that looks like a record."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None  # NaN and infinities come as text
    return float(value) if -_LARGEST < value < _LARGEST else None


def _epoch(value: Any) -> float | None:
    number = _number(value)
    return number if number is not None and 0 <= number < _MOST_EPOCHS else None


def _trained(record: Record) -> tuple[float | None, Mapping[str, Any]]:
    metrics = record.fields.get("metrics")
    values = dict(metrics) if isinstance(metrics, Mapping) else {}
    return position(record), {**values, LOSS: record.fields.get("loss")}


def _scored(record: Record) -> tuple[float | None, Mapping[str, Any]]:
    metrics = record.fields.get("metrics")
    return _epoch(record.fields.get("epoch")), metrics if isinstance(metrics, Mapping) else {}


def _speed(record: Record) -> tuple[float | None, Mapping[str, Any]]:
    return position(record), {SPEED: record.fields.get("steps_per_second")}


def _by_epoch(progress: Sequence[Record], read: Any) -> dict[str, tuple[Point, ...]]:
    """The epochs' ends; of less than two, what was recorded within the epoch."""
    ends = _series((record for record in progress if record.fields.get("epoch_end")), read)
    within = _series((record for record in progress if not record.fields.get("epoch_end")), read)
    few = {name: points for name, points in within.items() if len(ends.get(name, ())) < 2}
    return {**ends, **few}


def _series(records: Iterable[Record], read: Any) -> dict[str, tuple[Point, ...]]:
    found: dict[str, dict[float, float]] = {}
    for record in records:
        epoch, values = read(record)
        for name, value in values.items():
            number = _number(value)
            if epoch is not None and number is not None:
                found.setdefault(str(name), {})[epoch] = number
    return {
        name: _thinned([Point(*item) for item in sorted(values.items())]) for name, values in found.items()
    }


def _thinned(points: Sequence[Point]) -> tuple[Point, ...]:
    """Evenly, the last one always."""
    stride = math.ceil(len(points) / _MOST_POINTS)
    kept = points[::-stride] if stride else ()
    return tuple(reversed(kept))


def _breaks(progress: Sequence[Record], restarts: Sequence[Restart]) -> tuple[float, ...]:
    """How far the training was when the primary failed."""
    found: list[float] = []
    for restart in restarts:
        if progress and restart.lane.latest.name == progress[-1].task:
            before = [position(record) for record in progress if record.time <= restart.failed]
            known = [place for place in before if place is not None]
            found += known[-1:]
    return tuple(dict.fromkeys(found))
