"""Values -> positions on the page in percent, and the ticks of axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from launcher.report.amounts import number, rate
from launcher.report.curves import FROM_ZERO, Curve, Point

_SECONDS: Final = (
    0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800,
    3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
)  # fmt: skip
_MOST_TIMES: Final = 8
_VALUES: Final = 4
_MOST_EPOCHS: Final = 8
_MOST_DOTS: Final = 40


@dataclass(frozen=True)
class Tick:
    """A line of a grid and its label; `at` is its position in percent of the axis."""

    at: float
    label: str


@dataclass(frozen=True)
class Line:
    """One series in a chart. `points` are those of an SVG polyline in a square of 100 by 100, with y
    downwards. `dots` are (x, y, title) in percent, with y upwards. `first` and `last` are the values at the
    ends. `hue` is the series'.
    """

    name: str
    held_out: bool
    points: str
    dots: tuple[tuple[float, float, str], ...]
    first: str
    last: str
    hue: str


@dataclass(frozen=True)
class Chart:
    """A curve as it is drawn. `restarts` are positions on the x axis in percent."""

    name: str
    lines: tuple[Line, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    restarts: tuple[float, ...]


def share(part: float, whole: float) -> float:
    """`part` of `whole` in percent; 0 if `whole` is 0."""
    return round(100 * part / whole, 3) if whole > 0 else 0.0


def time_ticks(total: float) -> list[Tick]:
    """The ticks of a time axis from 0 to `total` seconds."""
    if total <= 0:
        return [Tick(0.0, "0")]
    step = next((step for step in _SECONDS if total / step <= _MOST_TIMES), float(math.ceil(total / 8)))
    times = [count * step for count in range(int(total / step) + 1)]
    return [Tick(share(time, total), _clock(time, step)) for time in times]


def _clock(seconds: float, step: float) -> str:
    if seconds == 0:
        return "0"
    if step < 60 and seconds < 60:
        return f"{seconds:g} s"
    whole = round(seconds)
    if step < 60:
        return f"{whole // 60}:{whole % 60:02d}"
    if step < 3600:
        hours, minutes = divmod(whole // 60, 60)
        return f"{hours} h {minutes:02d}" if hours else f"{minutes} min"
    return f"{whole // 3600} h" if step < 86400 else f"{whole // 86400} d"


def chart(curve: Curve) -> Chart:
    """The chart of a curve that has a point. A series of many points is drawn without dots."""
    points = [point for series in curve.series for point in series.points]
    left, right = _epochs(points)
    values = [point.value for point in points]
    ticks = _ticks(min(0.0 if curve.name in FROM_ZERO else values[0], *values), max(values))
    low, high = ticks[0], ticks[-1]

    def place(point: Point) -> tuple[float, float]:
        return share(point.epoch - left, right - left), share(point.value - low, high - low)

    written = rate if curve.name in FROM_ZERO else number
    lines = []
    for series in curve.series:
        places = [place(point) for point in series.points]
        lines.append(
            Line(
                series.name,
                series.held_out,
                " ".join(f"{x:g},{round(100 - y, 3):g}" for x, y in places),
                tuple(
                    (x, y, f"{series.name}, epoch {point.epoch:.3g}: {written(point.value)}")
                    for (x, y), point in zip(places, series.points, strict=True)
                )
                if len(places) <= _MOST_DOTS
                else (),
                written(series.points[0].value),
                written(series.points[-1].value),
                series.hue,
            )
        )
    return Chart(
        curve.name,
        tuple(lines),
        tuple(Tick(share(epoch - left, right - left), f"{epoch:g}") for epoch in _whole(left, right)),
        tuple(Tick(share(value - low, high - low), _short(value, ticks)) for value in ticks),
        tuple(share(epoch - left, right - left) for epoch in curve.restarts if left <= epoch <= right),
    )


def _epochs(points: Sequence[Point]) -> tuple[float, float]:
    first, last = min(point.epoch for point in points), max(point.epoch for point in points)
    # A point within an epoch: the axis starts where that epoch began.
    left = float(math.floor(first)) if first % 1 or first == last else first
    return (left - 1 if left == last else left), last


def _whole(left: float, right: float) -> list[float]:
    step = max(1, _nice((right - left) / _MOST_EPOCHS))
    first = math.ceil(left / step) * step
    epochs = [first + count * step for count in range(int((right - first) / step) + 1)]
    return [left, *epochs] if epochs and epochs[0] - left > step / 2 else epochs


def _nice(step: float) -> float:
    """The smallest of 1, 2, 5, 10, 20, ... (and 0.5, 0.2, ...) that is not less than `step`."""
    if step <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(step))
    return next((factor * power for factor in (1, 2, 5) if factor * power >= step * 0.999), 10 * power)


def _ticks(low: float, high: float) -> list[float]:
    """Round values, the first not above `low` and the last not below `high`."""
    if high - low <= 1e-12 * max(abs(low), abs(high), 1.0):
        spread = max(abs(high) / 10, 1e-9) if high else 1.0
        low, high = low - spread, high + spread
    step = _nice((high - low) / _VALUES)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [count * step for count in range(first, last + 1)]


def _short(value: float, ticks: Sequence[float]) -> str:
    """A tick's label, with enough digits to differ from the next tick's."""
    step = ticks[1] - ticks[0]
    if abs(value) >= 1e6 or (value and step < 1e-4):
        return f"{value:.3g}"
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{0.0 if abs(value) < step / 2 else value:,.{digits}f}"
