"""Pods' times and tasks' records -> a timeline for each task: what it did from when until when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from launcher import sentences
from launcher.backends.base import History, RunEvent
from launcher.report.pod_endings import ending
from launcher.status import Phase, TaskStatus
from launcher.task_records import presentation
from launcher.task_records.presentation import State
from worker.contract.records import Event, Record, Waiting

_PULLING: Final = ("ErrImagePull", "ImagePullBackOff")
_EVALUATOR: Final = "evaluator"
_MAX_SKEW_SECONDS: Final = 86400.0
"""A record is ignored if it is from further outside the run: no node's clock is that wrong."""


@dataclass(frozen=True)
class Segment:
    """An `attempt` is in one state from `start` to `end`. `note` says more, such as what it waits for."""

    state: State
    start: float
    end: float
    attempt: int
    note: str = ""


@dataclass(frozen=True)
class Mark:
    """A point in time, of a kind: a pod `failed`, or a checkpoint was `scored`."""

    time: float
    kind: str
    text: str


@dataclass(frozen=True)
class TaskTimeline:
    """One task. `name` is for the user: `worker 1`. `released` is when the task was told to leave, or has
    told the others.
    """

    role: str
    index: int
    name: str
    segments: tuple[Segment, ...]
    marks: tuple[Mark, ...]
    attempts: tuple[TaskStatus, ...]
    released: float | None = None

    @property
    def latest(self) -> TaskStatus:
        """Its last pod."""
        return self.attempts[-1]


Records = Mapping[tuple[str, int, int], Sequence[Record]]
"""By role, index and attempt, in the order of their times."""


def start_time(history: History) -> float:
    """When the run was submitted, or the earliest time that is known."""
    times = [history.submitted, history.status.started, *(a.created for a in history.attempts)]
    return min((time for time in times if time is not None), default=history.seen)


def end_time(history: History) -> float:
    """When the last task ended, or now."""
    status = history.status
    times = [status.finished, *(a.finished for a in history.attempts)]
    if not status.ended:
        times.append(history.seen)
    elif status.finished is None:  # a lost run: the last record
        times += [line.record.time for line in history.lines if line.record is not None]
    return max((time for time in times if time is not None), default=start_time(history))


def with_possible_times(history: History) -> History:
    """The history without records of impossible times: any program can print what looks like a record. And
    without those that only say what a task does for the moment.
    """
    early, late = start_time(history) - _MAX_SKEW_SECONDS, history.seen + _MAX_SKEW_SECONDS
    lines = [
        line
        for line in history.lines
        if line.record is not None and line.record.event != Event.DOING and early < line.record.time < late
    ]
    return replace(history, lines=lines)


def by_attempt(history: History) -> Records:
    """The records, sorted by time."""
    records_by_attempt: dict[tuple[str, int, int], list[Record]] = {}
    for line in history.lines:
        if line.record is not None:
            records_by_attempt.setdefault((line.role, line.index, line.attempt), []).append(line.record)
    return {
        key: sorted(records, key=lambda record: record.time) for key, records in records_by_attempt.items()
    }


def task_timelines(history: History) -> list[TaskTimeline]:
    """The timeline of each task that has had a pod, the primary role's first."""
    records = by_attempt(history)
    pulls = _pulls(history.events)
    until = end_time(history)
    of_task: dict[tuple[str, int], list[TaskStatus]] = {}
    for attempt in history.attempts:
        of_task.setdefault((attempt.role, attempt.index), []).append(attempt)
    made: list[TaskTimeline] = []
    training: list[Segment] = []
    for attempts in of_task.values():
        task = _Builder(history, records, pulls, until, attempts, training).timeline()
        if not made:
            training = [segment for segment in task.segments if segment.state is State.TRAINING]
        made.append(task)
    return made


def _pulls(events: Iterable[RunEvent]) -> Mapping[str, Sequence[float]]:
    """When images were pulled, in whole seconds, by the name of the task in events: `worker 1`."""
    pulls: dict[str, list[float]] = {}
    for event in events:
        if event.reason == "Pulling" or (event.reason == "Pulled" and "already" not in event.message):
            pulls.setdefault(event.about, []).append(event.time)
    return pulls


class _Builder:
    """Makes the timeline of one task. `training` are the primary's segments of training: a worker or ps that
    writes no such records is taken to train with it.
    """

    def __init__(
        self,
        history: History,
        records: Records,
        pulls: Mapping[str, Sequence[float]],
        until: float,
        attempts: Sequence[TaskStatus],
        training: Sequence[Segment],
    ) -> None:
        first = attempts[0]
        self._key = first.role, first.index
        self._status = history.status
        self._records = records
        name = f"{first.role} {first.index}"
        self._pulls = pulls.get(name, ())
        self._first_event_time = min(
            (event.time for event in history.events if event.about == name), default=None
        )
        """When the first event about a pod of the task came."""
        self._until = until
        self._attempts = attempts
        self._training = training
        self._begin = start_time(history)
        self._segments: list[Segment] = []
        self._has_no_records = all(key[:2] != self._key for key in records)

    def timeline(self) -> TaskTimeline:
        marks: list[Mark] = []
        released = None
        cursor, before = self._begin, State.HELD
        first = self._attempts[0]
        if (
            self._first_event_time is not None
            and first.created is not None
            and self._first_event_time < first.created - 1
        ):
            # It had a pod before that is gone.
            cursor, before = max(cursor, self._first_event_time), State.STOPPED
            self._add(State.HELD, self._begin, cursor, first.attempt)
        for number, attempt in enumerate(self._attempts):
            created = max(cursor, attempt.created or attempt.started or cursor)
            self._add(before, cursor, created, attempt.attempt)
            following = self._attempts[number + 1] if number + 1 < len(self._attempts) else None
            end = attempt.finished or (following.created if following is not None else None) or self._until
            end = max(end, created)
            records = self._records.get((*self._key, attempt.attempt), ())
            self._attempt(attempt, records, created, end)
            marks += [
                Mark(r.time, "scored", presentation.describe(r)) for r in records if _is_score(r, attempt)
            ]
            released = next((r.time for r in records if r.event == Event.RELEASED), released)
            if attempt.phase is Phase.FAILED and not attempt.deleted:
                marks.append(Mark(end, "failed", ending(attempt)))
            cursor, before = end, State.STOPPED if attempt.deleted else State.DOWN
        if self._is_replaced():
            self._add(before, cursor, self._until, self._attempts[-1].attempt + 1)
        name = sentences.who(*self._key, self._status)
        return TaskTimeline(
            *self._key, name, tuple(self._segments), tuple(marks), tuple(self._attempts), released
        )

    def _is_replaced(self) -> bool:
        """Whether another pod will come: the last one failed, and neither the role nor the run has ended."""
        last, status = self._attempts[-1], self._status
        over = last.phase is Phase.SUCCEEDED or last.finished is None
        roles = [role for role in status.roles if role.role == self._key[0]]
        if any(role.elastic is not None and self._key[1] >= role.desired for role in roles):
            return False  # the run has fewer workers now
        ended = any(role.phase in (Phase.SUCCEEDED, Phase.FAILED) for role in roles)
        return not over and not ended and not status.ended

    def _add(self, state: State, start: float, end: float, attempt: int, note: str = "") -> None:
        if end > start:
            self._segments.append(Segment(state, start, end, attempt, note))

    def _attempt(self, attempt: TaskStatus, records: Sequence[Record], created: float, end: float) -> None:
        number = attempt.attempt
        running = attempt.running if attempt.running is not None else end
        started = attempt.started if attempt.started is not None else running
        started, running = _within(started, created, end), _within(running, created, end)
        why = attempt.message or attempt.reason if attempt.phase is Phase.PENDING else ""
        self._add(State.PENDING, created, started, number, why if attempt.started is None else "")
        self._prepare(attempt, started, running, why)
        changes = [(running, State.STARTING, ""), *self._changes(records)]
        if self._has_no_records and not self._serves():
            changes = [(running, State.RUNNING, "")]
        cursor = running
        ends = [*(time for time, *_ in changes[1:]), end]
        for (time, state, note), until in zip(changes, ends, strict=True):
            begin, stop = max(cursor, time), _within(until, cursor, end)
            if state in (State.READY, State.STARTING) and self._follows_primary(records):
                self._add_with_primary(state, begin, stop, number, ready=_has(records, Event.READY))
            else:
                self._add(state, begin, stop, number, note)
            cursor = max(cursor, stop)

    def _prepare(self, attempt: TaskStatus, started: float, running: float, why: str) -> None:
        # The events' times are rounded to seconds.
        pulls = [time for time in self._pulls if started - 1 <= time <= running + 1]
        pulled = _within(max(pulls), started, running) if pulls else started
        if attempt.reason in _PULLING or (len(pulls) == 1 and attempt.running is None):
            pulled = running
        self._add(State.PULLING, started, pulled, attempt.attempt, why)
        self._add(State.PREPARING, pulled, running, attempt.attempt, why)

    def _changes(self, records: Sequence[Record]) -> list[tuple[float, State, str]]:
        """When the task changed its state by its own records: time, state, note."""
        changes: list[tuple[float, State, str]] = []
        for record in records:
            shown = presentation.of(record)
            state = None if shown is None else shown.begins(record.content, self._is_evaluator)
            if state is not None:
                awaited = record.content.tasks if isinstance(record.content, Waiting) else ()
                changes.append((record.time, state, ", ".join(awaited)))
        # A record that repeats the state is no change.
        return [
            change
            for number, change in enumerate(changes)
            if not number or change[1:] != changes[number - 1][1:]
        ]

    @property
    def _is_evaluator(self) -> bool:
        return self._key[0] == _EVALUATOR

    def _serves(self) -> bool:
        """Whether the task serves the primary: it is no evaluator, and the primary has trained."""
        return bool(self._training) and not self._is_evaluator

    def _follows_primary(self, records: Sequence[Record]) -> bool:
        return self._serves() and not _has(records, Event.TRAINING)

    def _add_with_primary(self, state: State, start: float, end: float, attempt: int, *, ready: bool) -> None:
        """Adds segments of training where the primary trains, and of `state` in between."""
        if state is State.STARTING and ready:
            self._add(state, start, end, attempt)
            return
        cursor = start
        for segment in self._training:
            begin, stop = _within(segment.start, cursor, end), _within(segment.end, cursor, end)
            if stop > begin:
                self._add(state, cursor, begin, attempt)
                self._add(State.TRAINING, begin, stop, attempt)
                cursor, state = stop, State.READY
        self._add(state, cursor, end, attempt)


def _within(time: float, low: float, high: float) -> float:
    return min(max(time, low), high)


def _has(records: Iterable[Record], event: str) -> bool:
    return any(record.event == event for record in records)


def _is_score(record: Record, attempt: TaskStatus) -> bool:
    return record.event == Event.EVALUATION and attempt.role == _EVALUATOR
