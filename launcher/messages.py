"""Statuses and records in words: one line each, without colours. Pure."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from launcher import task_devices
from launcher.backends.base import Finding, LogLine, RunEvent
from launcher.status import ADMISSION, Phase, RoleStatus, RunStatus, TaskStatus
from worker.contract import Event, Record

PROGRESS_SECONDS: Final = 5.0
"""At most one line of progress in so long, besides the epochs' ends: a log that is kept should be short."""

WAITING_SECONDS: Final = 15.0
"""The same for what is still being waited for."""

LAST_LINES: Final = 5
"""Of a task that failed and is tried again."""


@dataclass(frozen=True)
class News:
    """One line: who, what, and when (seconds since the epoch; None is now). `bad`: to be seen, in red say."""

    who: str
    text: str
    time: float | None = None
    bad: bool = False


class Narrator:
    """What is worth a line in a log that someone reads later. Remembers what it has said."""

    def __init__(self) -> None:
        self._before: RunStatus | None = None
        self._last_lines: dict[tuple[str, int, int], deque[str]] = {}
        """Of each attempt of a task; none once the task has said itself that it failed."""
        self._said: dict[tuple[str, int, str], tuple[float, Any]] = {}

    def news(self, status: RunStatus, lines: Sequence[LogLine], *, steps: bool = True) -> list[News]:
        """What has happened since the last call, when `lines` were not yet printed. `steps`: progress
        inside an epoch too.
        """
        before, self._before = self._before, status
        # A task speaks after its beginning and before its end.
        said = [] if status is before else beginnings(before, status)
        for line in lines:
            self._keep(line)
            record = line.record
            if record is None or (_is_step(record) and not steps):
                continue
            if self._worth(line, record, status):
                name, bad = who(line.role, line.index, status), task_devices.lacks(record)
                said.append(News(name, describe(record), record.time, bad))
        if status is not before:
            said += endings(before, status)
            said += self._restarts(before, status)
        return [news for news in said if news.text]

    def _keep(self, line: LogLine) -> None:
        key = (line.role, line.index, line.attempt)
        if line.record is not None:
            if line.record.event == Event.FAILED:
                self._last_lines[key] = deque(maxlen=0)
            return
        if key not in self._last_lines:
            self._last_lines[key] = deque(maxlen=LAST_LINES)
            self._last_lines.pop((line.role, line.index, line.attempt - 2), None)
        self._last_lines[key].append(line.text)

    def _restarts(self, before: RunStatus | None, after: RunStatus) -> list[News]:
        """Tasks that are tried again, and their last lines where they have not said what was wrong."""
        earlier = {(task.role, task.index): task.restarts for task in before.tasks} if before else {}
        said = []
        for task in after.tasks:
            if task.restarts > earlier.get((task.role, task.index), 0):
                name = who(task.role, task.index, after)
                attempt = task.before.attempt if task.before is not None else -1
                lines = self._last_lines.pop((task.role, task.index, attempt), ())
                said += [News(name, f"  | {text}") for text in lines]
                said.append(News(name, f"started again (restart {task.restarts})"))
        return said

    def _worth(self, line: LogLine, record: Record, status: RunStatus) -> bool:
        key = (line.role, line.index, record.event)
        if record.event == Event.DEVICES:
            # Of a thousand workers that lack the same the first will do.
            key = (line.role, -1, record.event)
        said, about = self._said.get(key, (float("-inf"), None))
        if record.event == Event.PROGRESS:
            worth = bool(record.fields.get("epoch_end")) or record.time - said >= PROGRESS_SECONDS
        elif record.event == Event.PREDICTING:
            worth = record.time - said >= PROGRESS_SECONDS
        elif record.event == Event.WAITING:
            waited_for = record.fields.get("tasks")
            worth = waited_for != about or record.time - said >= WAITING_SECONDS
            about = waited_for
        elif record.event == Event.RELEASED:
            worth = "tasks" in record.fields
        elif record.event == Event.DEVICES:
            worth = task_devices.is_news(record, line.role, line.index, status) and record.fields != about
            about = record.fields
        else:
            worth = record.event not in (Event.DONE, Event.READY)
        if worth:
            self._said[key] = (record.time, about)
        return worth


def _is_step(record: Record) -> bool:
    if record.event == Event.PREDICTING:
        return True
    return record.event == Event.PROGRESS and not record.fields.get("epoch_end")


def who(role: str, index: int, status: RunStatus) -> str:
    """`worker 1`, or `chief` where there is but one."""
    several = any(known.role == role and known.desired > 1 for known in status.roles)
    return f"{role} {index}" if several else role


def describe(record: Record) -> str:
    """The record as a sentence; "" for an event that this version does not know."""
    write = _WORDS.get(record.event)
    try:
        return write(record.fields) if write is not None else ""
    except _ODD:
        # A worker of another version, or a program that prints something alike.
        return record.event + " " + ", ".join(f"{name} {value}" for name, value in record.fields.items())


_ODD: Final = (LookupError, TypeError, ValueError, AttributeError, OverflowError)
"""What is raised by a record without a field, or with one of another type."""


def safely(write: Callable[[Mapping[str, Any]], str], fields: Mapping[str, Any]) -> str:
    """What it writes; "" of a record that is not as it must be."""
    try:
        return write(fields)
    except _ODD:
        return ""


def _waiting(fields: Mapping[str, Any]) -> str:
    if not fields["tasks"]:
        return f"every task answers (after {fields['seconds']:.0f} s)"
    names = _names(fields["tasks"])
    return f"waits for {names} ({fields['seconds']:.0f} s of at most {fields['deadline']} s)"


def _names(tasks: Sequence[str]) -> str:
    return ", ".join(tasks[:3]) + (f" and {len(tasks) - 3} more" if len(tasks) > 3 else "")


def _training(fields: Mapping[str, Any]) -> str:
    steps = fields["steps_per_epoch"]
    text = f"trains {fields['epochs']} epochs" + (f" of {steps} steps" if steps is not None else "")
    done = fields["initial_epoch"]
    return f"{text}; {done} done before" if done else text


def position(fields: Mapping[str, Any]) -> str:
    """Where the training is: `epoch 2/3, step 50/100`."""
    steps = fields["steps"]
    step = f"step {fields['step']}" + (f"/{steps}" if steps is not None else "")
    return f"epoch {fields['epoch']}/{fields['epochs']}, {step}"


def measures(fields: Mapping[str, Any]) -> str:
    """What a progress record has measured: `accuracy 0.8123, loss 0.5311, 412 steps/s`."""
    values = dict(fields.get("metrics") or {})
    if fields.get("loss") is not None:
        values.setdefault("loss", fields["loss"])
    parts = [metrics(values)] if values else []
    if fields.get("steps_per_second") is not None:
        parts.append(f"{_rate(fields['steps_per_second'])} steps/s")
    return ", ".join(parts)


def _rate(value: Any) -> str:
    return f"{value:.0f}" if isinstance(value, int | float) and value >= 10 else _number(value, 2)


def metrics(values: Mapping[str, Any]) -> str:
    """`accuracy 0.8423, loss 0.4312`; the loss last."""
    ordered = sorted(values, key=lambda name: name == "loss")
    return ", ".join(f"{name} {_number(values[name], 4)}" for name in ordered)


def _number(value: Any, digits: int) -> str:
    if not isinstance(value, int | float):
        return str(value)  # NaN and infinities come as text
    return f"{value:.{digits}f}" if 1e-3 <= abs(value) < 1e6 or value == 0 else f"{value:.3e}"


def _progress(fields: Mapping[str, Any]) -> str:
    measured = measures(fields)
    return position(fields) + (f": {measured}" if measured else "")


def _evaluation(fields: Mapping[str, Any]) -> str:
    epoch = fields["epoch"]
    after = f"after epoch {epoch}" if epoch is not None else str(fields["checkpoint"])
    return f"evaluation {after}: {metrics(fields['metrics'])}"


def _predicting(fields: Mapping[str, Any]) -> str:
    return f"predicted {fields['examples']:,} examples, {_rate(fields['examples_per_second'])} examples/s"


def predicted(status: RunStatus) -> str:
    """How far a prediction is, all tasks together: `predicted 1,200 examples, 340 examples/s`, or ""."""
    records = [own[Event.PREDICTING] for own in status.records.values() if Event.PREDICTING in own]
    try:
        names = ("examples", "examples_per_second")
        sums = {name: sum(record.fields[name] for record in records) for name in names}
    except (LookupError, TypeError):
        return ""  # a program that prints something alike
    return _predicting(sums) if records else ""


def predictions(fields: Mapping[str, Any]) -> str:
    """Where they are: `/model/predictions/run (1,200 examples in 12 files)`."""
    try:
        files = f"{fields['parts']:,} file" + ("" if fields["parts"] == 1 else "s")
        return f"{fields['path']} ({fields['examples']:,} examples in {files})"
    except (LookupError, TypeError, ValueError):
        return str(fields.get("path"))


def _released(fields: Mapping[str, Any]) -> str:
    if "tasks" not in fields:
        return f"released: {fields['outcome']}"
    unreachable = fields.get("unreachable") or ()
    text = f"released {len(fields['tasks'])} tasks"
    return text + (f"; could not reach {_names(unreachable)}" if unreachable else "")


_WORDS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    Event.WAITING: _waiting,
    Event.DEVICES: task_devices.describe,
    Event.READY: lambda _: "is ready",
    Event.TRAINING: _training,
    Event.PROGRESS: _progress,
    Event.EVALUATION: _evaluation,
    Event.LOADED: lambda fields: f"loaded {fields['checkpoint']} from {fields['path']}",
    Event.PREDICTING: _predicting,
    Event.PREDICTED: lambda fields: f"wrote the predictions to {predictions(fields)}",
    Event.EXPORTED: lambda fields: f"exported the model to {fields['path']}",
    Event.NOTICE: lambda fields: str(fields["message"]),
    Event.FAILED: lambda fields: f"failed: {fields['message']}",
    Event.RELEASED: _released,
    Event.DONE: lambda _: "done",
}


def beginnings(before: RunStatus | None, after: RunStatus) -> list[News]:
    """What has begun between two statuses. Before the first, nothing had.

    Of a role's tasks, the first, unless all have begun at once; and the last.
    """
    said: list[News] = []
    if before is not None and before.phase is Phase.SUSPENDED and after.phase is Phase.RUNNING:
        said.append(News("run", "resumed"))
    for role in after.roles:
        had, has = _started(before, role.role), _started(after, role.role)
        if has > had and (had == 0 or has == role.desired):
            count = f"{has}" if has == role.desired else f"{has} of {role.desired}"
            said.append(News(role.role, f"{count} task{'' if count == '1' else 's'} started"))
    return said


def endings(before: RunStatus | None, after: RunStatus) -> list[News]:
    """What has ended between two statuses, or had to begin again."""
    said: list[News] = []
    if (before is None or before.phase is not after.phase) and after.phase in (Phase.SUSPENDED, Phase.LOST):
        said.append(News("run", f"{after.phase}".lower() + (f": {after.message}" if after.message else "")))
    elif after.reason == ADMISSION and (before is None or before.message != after.message):
        said.append(News("run", after.message))
    earlier = {(task.role, task.index): task for task in before.tasks} if before else {}
    for task in after.tasks:
        name = who(task.role, task.index, after)
        said += (News(name, text) for text in _task_news(earlier.get((task.role, task.index)), task))
    known = {role.role: role for role in before.roles} if before else {}
    for role in after.roles:
        said += (News(role.role, text) for text in _role_end(known.get(role.role), role))
    return said


def _started(status: RunStatus | None, role: str) -> int:
    """Of the role's tasks; one that has to start again has."""
    tasks = status.tasks if status is not None else ()
    return sum(task.role == role and (task.phase is not Phase.PENDING or task.restarts > 0) for task in tasks)


def _task_news(before: TaskStatus | None, after: TaskStatus) -> list[str]:
    said = []
    if after.message and after.phase is Phase.RUNNING and (before is None or before.message != after.message):
        said.append(after.message)
    failed = after.phase is Phase.FAILED and not after.deleted
    is_news = before is None or before.phase is not Phase.FAILED or before.restarts != after.restarts
    if failed and is_news:
        said.append(ending(after))
    return said


def ending(task: TaskStatus) -> str:
    """How a task failed: `ended with exit code 137 (SIGKILL)`."""
    if task.reason == "StartError":
        return f"could not be started: {task.message}"
    code = task.exit_code
    text = "failed" if code is None else f"ended with exit code {code}{_signal_name(code)}"
    return f"{text}: {task.message}" if task.message else text


def duration(seconds: float) -> str:
    """`59.9 s`, `2 min 0 s`, `1 h 0 min`."""
    if seconds < 59.95:
        return f"{max(0.0, seconds):.1f} s"
    # Rounded first: 119.7 s is no 1 min 60 s.
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def waiting(role: RoleStatus) -> str:
    """Why a role's tasks do not start: `waits (Unschedulable): 0/3 nodes are available`."""
    return f"waits ({role.reason}): {role.message}"


def event(event: RunEvent) -> str:
    """One line: `2026-01-31 12:00:00  worker 1  FailedScheduling  0/3 nodes are available (3 times)`."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.time))
    times = f" ({event.count} times)" if event.count > 1 else ""
    mark = "!" if event.warning else " "
    return f"{when} {mark} {event.about:<12} {event.reason}: {event.message}{times}"


def findings(found: Sequence[Finding]) -> Iterator[str]:
    """A line for each, what to do about it on the next, and what it comes to."""
    width = max(len(finding.subject) for finding in found)
    for finding in found:
        yield f"{finding.verdict:<8} {finding.subject:<{width}}  {finding.message}"
        if finding.advice:
            yield f"{'':<{width + 9}}  {finding.advice}"
    missing = [finding.subject for finding in found if finding.verdict == "missing"]
    yield ""
    yield f"a run cannot be submitted here: see {', '.join(missing)}" if missing else "a run can be submitted"


def _signal_name(code: int) -> str:
    try:
        return f" ({signal.Signals(code - 128).name})" if code > 128 else ""
    except ValueError:
        return ""


def _role_end(before: RoleStatus | None, after: RoleStatus) -> list[str]:
    if after.waiting:
        # How many tasks wait for the same changes too often to be told each time.
        return [] if before is not None and before.reason == after.reason else [waiting(after)]
    if before is not None and before.phase is after.phase:
        return []
    if after.phase is Phase.SUCCEEDED:
        return ["complete"]
    if after.phase is Phase.FAILED:
        return [f"failed: {after.message}" if after.message else "failed"]
    return []
