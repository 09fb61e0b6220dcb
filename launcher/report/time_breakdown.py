"""Where the time went, from the primary task's point of view: its end is the run's."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from launcher.backends.base import History
from launcher.report.amounts import MOST_NAMES, counted, duration
from launcher.report.restarts import SUSPECT_SECONDS, WORKING, Restart
from launcher.report.timeline import Lane, Records, Span, State, by_attempt, horizon, origin
from launcher.status import Phase
from launcher.wording import listed
from worker.contract import Progress, Record

_WORDS: Final[Mapping[State, str]] = {
    State.HELD: "before its first pod was made",
    State.PENDING: "waiting for a node",
    State.PULLING: "pulling images",
    State.PREPARING: "preparing the container",
    State.STARTING: "starting the program",
    State.WAITING: "waiting for other tasks",
    State.READY: "ready, without training",
    State.TRAINING: "training",
    State.SCORING: "scoring checkpoints",
    State.RUNNING: "running",
    State.DOWN: "lost to restarts",
    State.STOPPED: "suspended",
    State.FINISHING: "saving and leaving",
}
"""In the order in which they are told."""

_LEAST_SHARE: Final = 0.004
_LEAST_SECONDS: Final = 0.05


@dataclass(frozen=True)
class Share:
    """So many `seconds` of the run in a state; `text` says it, as `waiting for ps 0`."""

    state: State
    seconds: float
    text: str


@dataclass(frozen=True)
class Spent:
    """`shares` make up `total` seconds. `remarks` are sentences on what cost the primary no time."""

    total: float
    shares: tuple[Share, ...]
    remarks: tuple[str, ...]

    @property
    def worth_telling(self) -> tuple[Share, ...]:
        """The shares that are large enough to be seen."""
        least = max(_LEAST_SECONDS, _LEAST_SHARE * self.total)
        return tuple(share for share in self.shares if share.seconds >= least)


def spent(history: History, lanes: Sequence[Lane], restarts: Sequence[Restart]) -> Spent:
    """From the submission until the primary's end, or now."""
    begin = origin(history)
    end = history.status.finished or horizon(history)
    total = max(0.0, end - begin)
    primary = lanes[0] if lanes else None
    seconds: dict[State, float] = defaultdict(float)
    if primary is None:
        seconds[State.HELD] = total
    else:
        own = [restart for restart in restarts if restart.lane is primary]
        _add_up(seconds, primary, own, end, by_attempt(history))
    shares = tuple(
        Share(state, seconds[state], _text(state, lanes, restarts)) for state in _WORDS if seconds[state] > 0
    )
    return Spent(total, shares, tuple(_remarks(lanes, restarts, begin)))


def _add_up(
    seconds: dict[State, float], primary: Lane, own: Sequence[Restart], end: float, records: Records
) -> None:
    """A restart costs what lies between the failure and the work of the next pod, and what is done twice."""
    costs = {restart.attempt: State.STOPPED if restart.stopped else State.DOWN for restart in own}
    numbers = sorted({span.attempt for span in primary.spans})
    following = dict(itertools.pairwise(numbers))
    for number, spans in itertools.groupby(primary.spans, key=lambda span: span.attempt):
        works = False
        for span in spans:
            works = works or span.state in WORKING
            state = span.state
            if number in costs and not works:
                state = costs[number]
            elif state is State.FINISHING and following.get(number) in costs:
                state = costs[following[number]]
            seconds[state] += max(0.0, min(span.end, end) - span.start)
    logs = [records.get((primary.role, primary.index, a.attempt), ()) for a in primary.attempts]
    for number, restart in enumerate(own):
        later = itertools.chain.from_iterable(logs[number + 1 :])
        twice = min(_repeated(logs[number], later, restart.failed), seconds[State.TRAINING])
        seconds[State.TRAINING] -= twice
        seconds[costs[restart.attempt]] += twice


def _repeated(before: Iterable[Record], after: Iterable[Record], failed: float) -> float:
    """Seconds that the attempt before had trained beyond where the next one began: they are trained again.

    Too few by the time between two records, a second.
    """
    began = next(((p.epoch, p.step) for r in after if isinstance(p := r.content, Progress)), None)
    if began is None:
        return 0.0
    beyond = [r.time for r in before if isinstance(p := r.content, Progress) and (p.epoch, p.step) > began]
    return max(0.0, failed - min(beyond)) if beyond else 0.0


def _text(state: State, lanes: Sequence[Lane], restarts: Sequence[Restart]) -> str:
    primary = lanes[0] if lanes else None
    if primary is None:
        return _WORDS[state]
    own = [restart for restart in restarts if restart.lane is primary]
    if state is State.WAITING:
        names = _awaited(primary.spans, lanes)
        return f"waiting for {listed(names, MOST_NAMES)}" if names else _WORDS[state]
    if state is State.STOPPED:
        return f"suspended or moved ({counted(sum(r.stopped for r in own), 'time')})"
    if state is State.DOWN:
        return _lost([restart for restart in own if not restart.stopped])
    return _WORDS[state]


def _lost(restarts: Sequence[Restart]) -> str:
    causes = Counter(f"{restart.name} ({restart.why})" for restart in restarts)
    if len(causes) == 1:
        return f"lost to {counted(len(restarts), 'restart')} of {next(iter(causes))}"
    told = [f"{name}, {count} times" if count > 1 else name for name, count in causes.most_common()]
    return f"lost to {counted(len(restarts), 'restart')}: of {listed(told, MOST_NAMES)}"


def _awaited(spans: Iterable[Span], lanes: Sequence[Lane]) -> list[str]:
    """Whom the task has waited for at least half as long as for the last one, the longest awaited first."""
    known = {lane.latest.name: lane.name for lane in lanes}
    waited: Counter[str] = Counter()
    for span in spans:
        if span.state is State.WAITING and span.note:
            for name in span.note.split(", "):
                waited[known.get(name, name)] += round(1000 * (span.end - span.start))
    longest = max(waited.values(), default=0)
    return [name for name, time in waited.most_common() if 2 * time >= longest]


def _remarks(lanes: Sequence[Lane], restarts: Sequence[Restart], begin: float) -> Iterable[str]:
    """On the restarts beside which the training went on."""
    if not lanes:
        return
    primary = lanes[0]
    own = [restart for restart in restarts if restart.lane is primary]
    aside = [
        restart
        for restart in restarts
        if restart.lane is not primary
        and not restart.stopped
        and not any(_together(restart, other) for other in own)
    ]
    if len(aside) > 3:
        names = {restart.lane.name for restart in aside}
        yield (
            f"Besides, {counted(len(names), 'task')} had {counted(len(aside), 'restart')} while the "
            f"{primary.name} went on."
        )
        return
    for restart in aside:
        at = duration(restart.failed - begin)
        yield (
            f"Besides, {restart.lane.name} ended after {at} ({restart.why}) and {_return(restart)}, "
            f"while the {primary.name} went on."
        )


def _return(restart: Restart) -> str:
    if restart.back is not None:
        return f"was back {duration(restart.back - restart.failed)} later"
    over = restart.lane.latest.phase in (Phase.FAILED, Phase.SUCCEEDED)
    return "never came back" if over else "is not back yet"


def _together(restart: Restart, other: Restart) -> bool:
    """Whether the restart belongs to that of the primary: the cause of it, or another that it took along."""
    until = other.back if other.back is not None else float("inf")
    return other.failed - SUSPECT_SECONDS <= restart.failed <= until
