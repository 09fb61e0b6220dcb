"""Records -> the training's curves: loss, metrics and speed over the epochs."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from launcher.backends.base import LogLine
from launcher.report.restarts import Restart
from worker.contract.records import Evaluation, GpuUse, Progress, Record

_MOST_POINTS: Final = 240
_MOST_CHARTS: Final = 24
_MOST_EPOCHS: Final = 1e9
_LARGEST: Final = 1e100
_WINDOW: Final = 10.0
"""Seconds, within which all tasks measure their GPUs once."""

LOSS: Final = "loss"
SPEED: Final = "steps per second"
GPU_USE: Final = "GPU use, %"
GPU_MEMORY: Final = "GPU memory, GiB"
FROM_ZERO: Final = (SPEED, GPU_USE, GPU_MEMORY)
"""The curves that are not the program's: their axes begin at 0."""


@dataclass(frozen=True)
class Point:
    """A value after `epoch` epochs, which need not be whole."""

    epoch: float
    value: float


@dataclass(frozen=True)
class Series:
    """Values of the training, or of the evaluations (`held_out`). `hue`: that of its colour, where runs share
    a chart.
    """

    name: str
    held_out: bool
    points: tuple[Point, ...]
    hue: str = ""


@dataclass(frozen=True)
class Curve:
    """One chart. `restarts` are the epochs that were reached when the primary failed."""

    name: str
    series: tuple[Series, ...]
    restarts: tuple[float, ...]


def curves(lines: Iterable[LogLine], restarts: Sequence[Restart]) -> list[Curve]:
    """The loss, then the metrics by name, then steps per second, and what the GPUs did. Of an epoch that was
    trained twice, only the last values count.
    """
    records = sorted((line.record for line in lines if line.record is not None), key=lambda r: r.time)
    progress = [(record, content) for record in records if isinstance(content := record.content, Progress)]
    done = [each for _, each in progress]
    evaluations = [each for record in records if isinstance(each := record.content, Evaluation)]
    trained = _by_epoch(done, lambda each: each.values)
    scored = _series((each.epoch, each.metrics) for each in evaluations)
    speed = _by_epoch(done, lambda each: {SPEED: each.steps_per_second})
    names = [LOSS, *sorted({*trained, *scored} - {LOSS})]
    breaks = _breaks(progress, restarts)
    all_curves = []
    for name in names[:_MOST_CHARTS]:
        pair = [Series("training", False, trained[name])] if name in trained else []
        pair += [Series("evaluation", True, scored[name])] if name in scored else []
        if pair:
            all_curves.append(Curve(name, tuple(pair), breaks))
    if SPEED in speed:
        all_curves.append(Curve(SPEED, (Series("training", False, speed[SPEED]),), breaks))
    for name, points in _of_gpus(records, progress).items():
        all_curves.append(Curve(name, (Series("training", False, points),), breaks))
    return all_curves


def last(curve: Curve, *, held_out: bool) -> Point | None:
    """The last point of the curve's training or evaluation."""
    points = [series.points[-1] for series in curve.series if series.held_out is held_out]
    return points[0] if points else None


def position(progress: Progress) -> float | None:
    """Epochs that were done: 2.5 in the middle of the third. None where the epoch's steps are unknown."""
    if progress.epoch_end:
        return progress.epoch
    if progress.steps is not None and 0 < progress.step <= progress.steps:
        return progress.epoch - 1 + progress.step / progress.steps
    return None


def _by_epoch(
    progress: Sequence[Progress], values: Callable[[Progress], Mapping[str, float]]
) -> dict[str, tuple[Point, ...]]:
    """The values at the ends of epochs. With less than two ends, those within the epoch."""
    ends = _series((position(each), values(each)) for each in progress if each.epoch_end)
    within = _series((position(each), values(each)) for each in progress if not each.epoch_end)
    few = {name: points for name, points in within.items() if len(ends.get(name, ())) < 2}
    return {**ends, **few}


def _series(pairs: Iterable[tuple[float | None, Mapping[str, float]]]) -> dict[str, tuple[Point, ...]]:
    """The points of each name, from pairs of epoch and values. Leaves out what cannot be drawn; of two values
    at one epoch the later one counts.
    """
    series: dict[str, dict[float, float]] = {}
    for epoch, values in pairs:
        for name, value in values.items():
            if epoch is not None and epoch < _MOST_EPOCHS and -_LARGEST < value < _LARGEST:
                series.setdefault(name, {})[epoch] = value
    return {
        name: _thinned([Point(*item) for item in sorted(values.items())]) for name, values in series.items()
    }


def _of_gpus(
    records: Sequence[Record], progress: Sequence[tuple[Record, Progress]]
) -> dict[str, tuple[Point, ...]]:
    """The mean use of all tasks' GPUs, and the most memory of one, at the epoch that was reached then."""
    windows: dict[int, list[GpuUse]] = {}
    for record in records:
        if isinstance(record.content, GpuUse):
            windows.setdefault(int(record.time / _WINDOW), []).append(record.content)
    reached = [
        (record.time, place) for record, content in progress if (place := position(content)) is not None
    ]
    return _series(
        (_reached(reached, (window + 0.5) * _WINDOW), _summed(uses)) for window, uses in windows.items()
    )


def _summed(measured: Sequence[GpuUse]) -> dict[str, float]:
    use = [value for each in measured for value in each.use]
    memory = [value for each in measured for value in each.memory]
    mean_use = {GPU_USE: sum(use) / len(use)} if use else {}
    return {**mean_use, GPU_MEMORY: max(memory) / 1024} if memory else mean_use


def _reached(known: Sequence[tuple[float, float]], time: float) -> float | None:
    """The epochs that were done at the time, between those that are `known`; None before them."""
    after = bisect(known, (time, math.inf))
    if after == 0:
        return None
    (earlier, begin), (later, end) = known[after - 1], known[min(after, len(known) - 1)]
    share = (time - earlier) / (later - earlier) if later > earlier else 0.0
    return begin + share * max(0.0, end - begin)


def _thinned(points: Sequence[Point]) -> tuple[Point, ...]:
    """At most _MOST_POINTS of them, evenly spaced, with the last one."""
    stride = math.ceil(len(points) / _MOST_POINTS)
    kept = points[::-stride] if stride else ()
    return tuple(reversed(kept))


def _breaks(progress: Sequence[tuple[Record, Progress]], restarts: Sequence[Restart]) -> tuple[float, ...]:
    """The epochs that were done when the primary failed."""
    epochs: list[float] = []
    for restart in restarts:
        if progress and restart.task.latest.name == progress[-1][0].task:
            before = [position(content) for record, content in progress if record.time <= restart.failed]
            known = [place for place in before if place is not None]
            epochs += known[-1:]
    return tuple(dict.fromkeys(epochs))
