"""A history of pods -> a history of training processes: a pod has several if the worker runtime in it has
started the training process again.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import replace

from launcher.backends.base import History
from launcher.status import Phase, TaskStatus
from worker.contract.records import Event, Record, Restarted

_Key = tuple[str, int, int]


def by_process(history: History) -> History:
    """Returns the history with an attempt for each training process. They are numbered anew, task by task."""
    records: dict[_Key, list[Record]] = {}
    for line in history.lines:
        if line.record is not None:
            records.setdefault((line.role, line.index, line.attempt), []).append(line.record)
    restarts = {
        key: [each for each in pod_records if _restarted(each)] for key, pod_records in records.items()
    }
    if not any(restarts.values()):
        return history
    attempts: list[TaskStatus] = []
    first: dict[_Key, int] = {}
    numbers: dict[tuple[str, int], int] = {}
    for pod in sorted(history.attempts, key=lambda pod: pod.attempt):
        key, task = (pod.role, pod.index, pod.attempt), (pod.role, pod.index)
        first[key] = numbers.get(task, 0)
        processes = _split(pod, records.get(key, ()), restarts.get(key, ()))
        attempts += [replace(each, attempt=first[key] + n) for n, each in enumerate(processes)]
        numbers[task] = first[key] + len(processes)
    order = {(pod.role, pod.index): number for number, pod in reversed(list(enumerate(history.attempts)))}
    attempts.sort(key=lambda each: (order[each.role, each.index], each.attempt))
    times = {key: [each.time for each in pod_restarts] for key, pod_restarts in restarts.items()}
    lines = []
    for line in history.lines:
        key = (line.role, line.index, line.attempt)
        number = first.get(key, line.attempt)
        if line.record is not None:
            number += bisect.bisect_right(times[key], line.record.time)
        lines.append(replace(line, attempt=number))
    return replace(history, attempts=attempts, lines=lines)


def _restarted(record: Record) -> bool:
    return isinstance(record.content, Restarted)


def _split(pod: TaskStatus, records: Sequence[Record], restarts: Sequence[Record]) -> list[TaskStatus]:
    """Returns the training processes of a pod."""
    processes = []
    rest = pod
    for restart in restarts:
        assert isinstance(restart.content, Restarted)  # noqa: S101 - for the type checker
        failure_times = [
            each.time for each in records if each.event == Event.FAILED and each.time <= restart.time
        ]
        end = max([*failure_times, rest.running or rest.started or 0.0])
        code = restart.content.exit_code
        processes.append(
            replace(rest, phase=Phase.FAILED, exit_code=code, reason="", finished=end, deleted=False)
        )
        rest = replace(pod, created=restart.time, started=restart.time, running=restart.time, in_place=True)
    return [*processes, rest]
