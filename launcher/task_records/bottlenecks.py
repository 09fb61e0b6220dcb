"""What holds a training up: a task that the others wait for, and by what; or something that all do. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple

from launcher.status import Phase, RunStatus, TaskStatus
from worker.contract.records import PARTS, Event, Record, Spent

SLOW: Final = 1.5
"""A task stands out from so many times the median step of the others on, not counting waits for others."""
WAITING: Final = 0.2
"""And where the others wait for their peers for this part of their time."""
INPUT: Final = 0.3
"""The part of the time from which on waiting for input, or saving, is worth a sentence."""
NETWORK: Final = 0.4
"""The same of the sums over the network: the least that any task waits for the others."""
SENDING: Final = 0.5
"""The part of the time for which data wait to be sent, so that a connection is what all wait for; of no other
task it may be half of that.
"""
THROTTLED: Final = 0.1
"""The part of the time for which a limit on CPU has held a task up, so that it is the reason."""

_OLD_WINDOWS: Final = 3
_OLD_SECONDS: Final = 30.0
"""A record is old after so many windows of its task, and so many seconds more."""

_WHY: Final = {"input": "its input", "computing": "its computing", "saving": "its saving"}


class Bottleneck(NamedTuple):
    """`text` says what it is, of the task of this name, or of all if that is "". It may name an `other` task,
    by its pod name.
    """

    task: str
    text: str
    other: str = ""


def of_run(status: RunStatus, now: float) -> Bottleneck | None:
    """Returns what holds a run up that trains `now`, None where nothing stands out."""
    if status.phase is not Phase.RUNNING:
        return None
    return of_times({task.name: spent for task in status.tasks if (spent := _of_task(task, status, now))})


def of_records(records: Sequence[Record]) -> Bottleneck | None:
    """Returns what has held a run up, by all that its tasks have recorded."""
    sums: dict[str, Spent] = {}
    for record in records:
        content = record.content
        if isinstance(content, Spent):
            before = sums.get(record.task, Spent(0, {}, 0.0))
            seconds = {part: before.seconds.get(part, 0.0) + content.seconds.get(part, 0.0) for part in PARTS}
            sending = dict(before.sending)
            for name, value in content.sending.items():
                sending[name] = sending.get(name, 0.0) + value
            sums[record.task] = Spent(
                before.steps + content.steps, seconds, before.throttled + content.throttled, sending
            )
    return of_times(sums)


def of_times(times: Mapping[str, Spent]) -> Bottleneck | None:
    """Returns what holds up tasks that take each step together, by the time of each."""
    times = {name: spent for name, spent in times.items() if spent.steps and _total(spent) > 0}
    return (_connection(times) or _slow(times) or _common(times)) if times else None


def _of_task(task: TaskStatus, status: RunStatus, now: float) -> Spent | None:
    record = status.records.get(task.name, {}).get(Event.SPENT)
    if record is None or not isinstance(record.content, Spent) or task.phase is not Phase.RUNNING:
        return None
    began = (task.running or task.started or 0.0) - 1.0  # Kubernetes' times are in whole seconds
    is_old = now - record.time > _OLD_WINDOWS * _total(record.content) + _OLD_SECONDS
    return None if record.time < began or is_old else record.content


def _connection(times: Mapping[str, Spent]) -> Bottleneck | None:
    """Data that wait to be sent are those of one connection. Its other end may be the one whose network is
    slow, and nothing tells which.
    """
    if len(times) < 2:
        return None
    shares = {name: _sent(spent)[1] / _total(spent) for name, spent in times.items()}
    sender = max(shares, key=lambda name: shares[name])
    if shares[sender] < SENDING or any(
        share > shares[sender] / 2 for name, share in shares.items() if name != sender
    ):
        return None
    receiver, _ = _sent(times[sender])
    waiting = f"{min(1.0, shares[sender]):.0%} of the time"
    text = f"has data waiting to be sent to {receiver} for {waiting}: the network of one of these two"
    return Bottleneck(sender, text, receiver)


def _sent(spent: Spent) -> tuple[str, float]:
    """Returns the task for which most data have waited, and for how long."""
    return max(spent.sending.items(), key=lambda each: each[1], default=("", 0.0))


def _slow(times: Mapping[str, Spent]) -> Bottleneck | None:
    """All have the same steps, so the slow one is the one that waits least for the others."""
    if len(times) < 2:
        return None
    step_seconds = {name: _without_waits(spent) for name, spent in times.items()}
    slowest = max(step_seconds, key=lambda name: step_seconds[name])
    others = [name for name in times if name != slowest]
    usual = median(step_seconds[name] for name in others)
    waiting = median(_share(times[name], "peers") for name in others)
    if waiting < WAITING or step_seconds[slowest] < SLOW * usual or not usual:
        return None
    spent = times[slowest]

    def excess(part: str) -> float:
        return _per_step(spent, part) - median(_per_step(times[name], part) for name in others)

    part = max(_WHY, key=excess)
    why = _WHY[part]
    if part == "computing" and spent.throttled >= THROTTLED * _total(spent):
        why += f", which its limit on CPU holds up for {spent.throttled / _total(spent):.0%} of the time"
    return Bottleneck(slowest, f"takes {step_seconds[slowest] / usual:.1f} times the median step: {why}")


def _common(times: Mapping[str, Spent]) -> Bottleneck | None:
    for_input = median(_share(spent, "input") for spent in times.values())
    if for_input >= INPUT:
        return Bottleneck("", f"{for_input:.0%} of the time is waiting for input: data workers or prefetch")
    for_peers = min(_share(spent, "peers") for spent in times.values())
    if for_peers >= NETWORK:
        text = (
            f"{for_peers:.0%} of each task's time is sums over the network: larger batches, or a faster one"
        )
        return Bottleneck("", text)
    saving = max(_share(spent, "saving") for spent in times.values())
    if saving >= INPUT:
        return Bottleneck("", f"{saving:.0%} of the time is saving: fewer checkpoints, or a faster disk")
    return None


def _total(spent: Spent) -> float:
    return sum(spent.seconds.values())


def _share(spent: Spent, part: str) -> float:
    return spent.seconds.get(part, 0.0) / _total(spent)


def _per_step(spent: Spent, part: str) -> float:
    return spent.seconds.get(part, 0.0) / spent.steps


def _without_waits(spent: Spent) -> float:
    """Returns the seconds of a step in which the task does not wait for others."""
    return (_total(spent) - spent.seconds.get("peers", 0.0)) / spent.steps
