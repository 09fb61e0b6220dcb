"""Tasks whose node is far off from the others', by what `spec.precheck` has measured. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import Final, NamedTuple

from launcher.status import Phase, RunStatus, TaskStatus
from worker.contract.records import Event, Prechecked

FAR: Final = 2.0
"""A task is far off whose rate is so many times less than the median of the others."""
FAR_STORAGE: Final = 3.0
"""The same of disks, which other pods use, too."""
FAR_LATENCY: Final = 3.0
LATENCY_MS: Final = 1.0
"""And round trips that are so many times longer, and so much."""
FEWEST: Final = 3
"""Of fewer tasks one cannot say which is far off."""


class Outlier(NamedTuple):
    """`text` says by what the task of this name is far off."""

    task: str
    node: str
    text: str


def measured(status: RunStatus) -> dict[str, Prechecked]:
    """Returns what the tasks' present pods have measured, by task."""
    contents = {}
    for task in status.tasks:
        record = status.records.get(task.name, {}).get(Event.PRECHECKED)
        if record is None or not isinstance(record.content, Prechecked):
            continue
        # Kubernetes' times are in whole seconds.
        if record.time >= (task.running or task.started or 0.0) - 1.0:
            contents[task.name] = record.content
    return contents


def is_complete(status: RunStatus) -> bool:
    """Returns whether all tasks have measured that will: those that run, or, once the training has begun,
    those whose records could be read.
    """
    contents = measured(status)
    running = [task for task in status.tasks if task.phase is Phase.RUNNING]
    trains = any(Event.TRAINING in records for records in status.records.values())
    return bool(contents) and (trains or all(task.name in contents for task in running))


def of_run(status: RunStatus) -> list[Outlier]:
    """Returns the tasks that are far off, in the order of the run's tasks; for one or more things."""
    contents = measured(status)
    tasks = {task.name: task for task in status.tasks if task.name in contents}
    texts: dict[str, list[str]] = {name: [] for name in tasks}
    for name, text in _compared(contents, tasks):
        texts[name].append(text)
    return [Outlier(name, tasks[name].node, ", ".join(each)) for name, each in texts.items() if each]


def _compared(
    contents: Mapping[str, Prechecked], tasks: Mapping[str, TaskStatus]
) -> Iterator[tuple[str, str]]:
    # Only pods of one role have the same processors.
    for role in dict.fromkeys(task.role for task in tasks.values()):
        products = {
            name: min(contents[name].compute.values())
            for name, task in tasks.items()
            if task.role == role and contents[name].compute
        }
        yield from _slow(products, FAR, "multiplies matrices at", "GFLOP/s")
    for place in dict.fromkeys(place for content in contents.values() for place in content.storage):
        rates = {name: each.storage[place] for name, each in contents.items() if place in each.storage}
        kind, _, direction = place.rpartition(" ")
        yield from _slow(rates, FAR_STORAGE, f"{direction}s its {kind} at", "MB/s")
    bandwidths, latencies = _best_links(contents, tasks)
    yield from _slow(bandwidths, FAR, "reaches the others at", "MB/s")
    for name, usual in _medians(latencies):
        if latencies[name] > FAR_LATENCY * usual and latencies[name] - usual > LATENCY_MS:
            trip = f"{number(latencies[name])} ms, where {number(usual)} ms is usual"
            yield name, f"reaches the others and back in {trip}"


def best_links(status: RunStatus) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Returns the greatest bandwidth (MB/s) and the least latency (ms) between each task and other nodes."""
    contents = measured(status)
    return _best_links(contents, {task.name: task for task in status.tasks if task.name in contents})


def _best_links(
    contents: Mapping[str, Prechecked], tasks: Mapping[str, TaskStatus]
) -> tuple[Mapping[str, float], Mapping[str, float]]:
    rates = _links(contents, tasks, "bandwidth")
    times = _links(contents, tasks, "latency")
    return {name: max(each) for name, each in rates.items()}, {
        name: min(each) for name, each in times.items()
    }


def _links(
    contents: Mapping[str, Prechecked], tasks: Mapping[str, TaskStatus], field: str
) -> dict[str, list[float]]:
    """Returns what was measured on the links of each task, in both directions. Of a node that is far off all
    are bad; of its neighbours only some. Links within a node say nothing of the network.
    """
    links: dict[str, list[float]] = {}
    for name, content in contents.items():
        for other, value in getattr(content, field).items():
            there = tasks.get(other)
            within = there is not None and there.node and there.node == tasks[name].node
            if there is not None and not within:
                links.setdefault(name, []).append(value)
                links.setdefault(other, []).append(value)
    return links


def _slow(rates: Mapping[str, float], factor: float, does: str, unit: str) -> Iterator[tuple[str, str]]:
    for name, usual in _medians(rates):
        if rates[name] * factor < usual:
            yield name, f"{does} {number(rates[name])} {unit}, where {number(usual)} are usual"


def _medians(values: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Yields each task with the median of the others."""
    if len(values) < FEWEST:
        return
    for name in values:
        yield name, median(value for other, value in values.items() if other != name)


def ranges(contents: Iterable[Prechecked]) -> str:
    """Returns `27 to 31 GFLOP/s; disk write 170 to 206 MB/s; 1,120 to 1,625 MB/s and 0.02 to 0.16 ms to the
    others`.
    """
    listed = list(contents)
    parts = [_range([value for each in listed for value in each.compute.values()], "GFLOP/s")]
    for place in dict.fromkeys(place for each in listed for place in each.storage):
        parts.append(f"{place} {_range([e.storage[place] for e in listed if place in e.storage], 'MB/s')}")
    bandwidth = _range([value for each in listed for value in each.bandwidth.values()], "MB/s")
    latency = _range([value for each in listed for value in each.latency.values()], "ms")
    parts.append(f"{bandwidth} and {latency} to the others" if bandwidth and latency else "")
    return "; ".join(filter(None, parts))


def _range(values: list[float], unit: str) -> str:
    if not values:
        return ""
    ends = dict.fromkeys(map(number, (min(values), max(values))))
    return f"{' to '.join(ends)} {unit}"


def number(value: float) -> str:
    """Returns `1,120`, or `0.21`."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
