"""Where the run's time went: what the primary task did, since the run ends with it."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from launcher.backends.base import History
from launcher.lists_and_counts import counted, listed
from launcher.report.amounts import MOST_NAMES, duration
from launcher.report.restarts import SUSPECT_SECONDS, WORKING, Restart
from launcher.report.timeline import Records, Segment, TaskTimeline, by_attempt, end_time, start_time
from launcher.status import Phase
from launcher.task_records.presentation import State
from worker.contract.records import Progress, Record

_WORDS: Final[Mapping[State, str]] = {
    State.HELD: "before its first pod was made",
    State.PENDING: "waiting for a node",
    State.PULLING: "pulling images",
    State.PREPARING: "preparing the container",
    State.STARTING: "starting the program",
    State.WAITING: "waiting for other tasks",
    State.READY: "idle",
    State.TRAINING: "training",
    State.SCORING: "scoring checkpoints",
    State.RUNNING: "running",
    State.DOWN: "lost to restarts",
    State.STOPPED: "suspended",
    State.FINISHING: "saving and exiting",
}
"""In the order in which they are shown."""

_GONE: Final = "suspended, or in pods that are gone"
_LEAST_SHARE: Final = 0.004
_LEAST_SECONDS: Final = 0.05


@dataclass(frozen=True)
class Share:
    """How many `seconds` the primary was in a state. `text` is for the reader: `waiting for ps 0`."""

    state: State
    seconds: float
    text: str


@dataclass(frozen=True)
class TimeBreakdown:
    """`shares` add up to `total` seconds. `remarks` are sentences on restarts that cost no time."""

    total: float
    shares: tuple[Share, ...]
    remarks: tuple[str, ...]

    @property
    def visible(self) -> tuple[Share, ...]:
        """The shares that are large enough to be shown."""
        least = max(_LEAST_SECONDS, _LEAST_SHARE * self.total)
        return tuple(share for share in self.shares if share.seconds >= least)


def break_down(history: History, tasks: Sequence[TaskTimeline], restarts: Sequence[Restart]) -> TimeBreakdown:
    """The time from the submission until the primary's end, or until now."""
    begin = start_time(history)
    end = history.status.finished or end_time(history)
    total = max(0.0, end - begin)
    primary = tasks[0] if tasks else None
    seconds: dict[State, float] = defaultdict(float)
    if primary is None:
        seconds[State.HELD] = total
    else:
        primary_restarts = [restart for restart in restarts if restart.task is primary]
        _add_up(seconds, primary, primary_restarts, end, by_attempt(history))
    shares = tuple(
        Share(state, seconds[state], _describe(state, tasks, restarts))
        for state in _WORDS
        if seconds[state] > 0
    )
    return TimeBreakdown(total, shares, tuple(_remarks(tasks, restarts, begin)))


def _add_up(
    seconds: dict[State, float],
    primary: TaskTimeline,
    restarts: Sequence[Restart],
    end: float,
    records: Records,
) -> None:
    """Adds the segments of the primary to `seconds`, by state. A restart costs the time from the failure
    until the next pod works, and the training that has to be done again.
    """
    costs = {restart.attempt: State.STOPPED if restart.stopped else State.DOWN for restart in restarts}
    numbers = sorted({segment.attempt for segment in primary.segments})
    following = dict(itertools.pairwise(numbers))
    for number, segments in itertools.groupby(primary.segments, key=lambda segment: segment.attempt):
        works = False
        for segment in segments:
            works = works or segment.state in WORKING
            state = segment.state
            if number in costs and not works:
                state = costs[number]
            elif state is State.FINISHING and following.get(number) in costs:
                state = costs[following[number]]
            seconds[state] += max(0.0, min(segment.end, end) - segment.start)
    logs = [records.get((primary.role, primary.index, a.attempt), ()) for a in primary.attempts]
    for number, restart in enumerate(restarts):
        later = itertools.chain.from_iterable(logs[number + 1 :])
        twice = min(_repeated(logs[number], later, restart.failed), seconds[State.TRAINING])
        seconds[State.TRAINING] -= twice
        seconds[costs[restart.attempt]] += twice


def _repeated(before: Iterable[Record], after: Iterable[Record], failed: float) -> float:
    """Seconds of training that the next attempt has to do again: those after the step at which it begins.

    It comes out too low by the time between two records, about a second.
    """
    began = next(((p.epoch, p.step) for r in after if isinstance(p := r.content, Progress)), None)
    if began is None:
        return 0.0
    beyond = [r.time for r in before if isinstance(p := r.content, Progress) and (p.epoch, p.step) > began]
    return max(0.0, failed - min(beyond)) if beyond else 0.0


def _describe(state: State, tasks: Sequence[TaskTimeline], restarts: Sequence[Restart]) -> str:
    primary = tasks[0] if tasks else None
    if primary is None:
        return _WORDS[state]
    primary_restarts = [restart for restart in restarts if restart.task is primary]
    if state is State.WAITING:
        names = _awaited(primary.segments, tasks)
        return f"waiting for {listed(names, MOST_NAMES)}" if names else _WORDS[state]
    if state is State.STOPPED:
        times = sum(restart.stopped for restart in primary_restarts)
        return f"suspended or moved ({counted(times, 'time')})" if times else _GONE
    if state is State.DOWN:
        return _lost([restart for restart in primary_restarts if not restart.stopped])
    return _WORDS[state]


def _lost(restarts: Sequence[Restart]) -> str:
    causes = Counter(f"{restart.name} ({restart.why})" for restart in restarts)
    if len(causes) == 1:
        return f"lost to {counted(len(restarts), 'restart')} of {next(iter(causes))}"
    named = [f"{name}, {count} times" if count > 1 else name for name, count in causes.most_common()]
    return f"lost to {counted(len(restarts), 'restart')}: of {listed(named, MOST_NAMES)}"


def _awaited(segments: Iterable[Segment], tasks: Sequence[TaskTimeline]) -> list[str]:
    """The tasks that were waited for, the longest first; at least half as long as for that one."""
    known = {task.latest.name: task.name for task in tasks}
    waited: Counter[str] = Counter()
    for segment in segments:
        if segment.state is State.WAITING and segment.note:
            for name in segment.note.split(", "):
                waited[known.get(name, name)] += round(1000 * (segment.end - segment.start))
    longest = max(waited.values(), default=0)
    return [name for name, time in waited.most_common() if 2 * time >= longest]


def _remarks(tasks: Sequence[TaskTimeline], restarts: Sequence[Restart], begin: float) -> Iterable[str]:
    """Sentences on the restarts during which the primary went on."""
    if not tasks:
        return
    primary = tasks[0]
    primary_restarts = [restart for restart in restarts if restart.task is primary]
    beside = [
        restart
        for restart in restarts
        if restart.task is not primary
        and not restart.stopped
        and not any(_came_with(restart, other) for other in primary_restarts)
    ]
    if len(beside) > 3:
        names = {restart.task.name for restart in beside}
        yield (
            f"Besides, {counted(len(names), 'task')} had {counted(len(beside), 'restart')} while the "
            f"{primary.name} went on."
        )
        return
    for restart in beside:
        at = duration(restart.failed - begin)
        yield (
            f"Besides, {restart.task.name} ended after {at} ({restart.why}) and {_recovery(restart)}, "
            f"while the {primary.name} went on."
        )


def _recovery(restart: Restart) -> str:
    if restart.back is not None:
        return f"was back {duration(restart.back - restart.failed)} later"
    over = restart.task.latest.phase in (Phase.FAILED, Phase.SUCCEEDED)
    return "never came back" if over else "is not back yet"


def _came_with(restart: Restart, other: Restart) -> bool:
    """Whether the restart came with one of the primary: shortly before it, or while the primary was down."""
    until = other.back if other.back is not None else float("inf")
    return other.failed - SUSPECT_SECONDS <= restart.failed <= until
