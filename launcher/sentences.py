"""Statuses and records as sentences: one line each, without colours. Pure functions."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from launcher.backends import precheck_outliers
from launcher.backends.base import Finding, LogLine, RunEvent
from launcher.lists_and_counts import counted
from launcher.status import ADMISSION, RUN_ENDED, RUN_FAILED, Phase, RoleStatus, RunStatus, TaskStatus
from launcher.task_records import bottlenecks, presentation, task_output
from worker.contract.records import Content, Event, Failed, Notice, Waiting

LAST_LINES: Final = 5
"""Lines of a failed task that is retried."""
_LATE_SECONDS: Final = 2.0
"""A cluster gives whole seconds, and tells of one pod after the other."""


@dataclass(frozen=True)
class News:
    """One line: name, text, and time (seconds since the epoch; None is now). `bad` lines are shown in red."""

    who: str
    text: str
    time: float | None = None
    bad: bool = False


class Narrator:
    """Chooses what is written to a log that someone reads later. Remembers what it has written."""

    def __init__(self) -> None:
        self._before: RunStatus | None = None
        self._last_lines: dict[tuple[str, int, int], deque[str]] = {}
        """The last lines of each attempt of a task; none once the task itself has reported its failure."""
        self._latest = float("-inf")
        """The time of the latest news."""
        self._spoke: dict[str, float] = {}
        """The time of the latest record of a task of the role."""
        self._last_shown: dict[tuple[str, int, str], tuple[Content | None, float]] = {}
        self._prechecks: tuple[str, ...] = ()
        self._notices: set[tuple[str, str]] = set()
        """The notices of each role: attempts and tasks repeat them."""

    def news(self, status: RunStatus, lines: Sequence[LogLine], *, in_place: bool = False) -> list[News]:
        """Returns what has happened since the last call, in the order of time; `lines` are those not yet
        printed. With `in_place`, progress and scores are shown elsewhere and left out here.
        """
        before, self._before = self._before, status
        # A task prints after its start and before its end, but a cluster gives these times in whole seconds.
        spoken = [(line.role, line.record.time) for line in lines if line.record is not None]
        began = [] if status is before else beginnings(before, status)
        untimed = [news for news in began if news.time is None]
        ordered = [_not_after(news, spoken) for news in began if news.time is not None]
        for role, when in spoken:
            self._spoke[role] = max(when, self._spoke.get(role, when))
        if (measured := tuple(prechecks(status))) != self._prechecks:
            ordered += [News("run", text) for text in measured if text not in self._prechecks]
            self._prechecks = measured
        for line in lines:
            self._keep(line)
            if (news := self._of_record(line, status, in_place=in_place)) is not None:
                ordered.append(news)
        if status is not before:
            ordered += map(self._not_before, endings(before, status))
            ordered += self._restarts(before, status)
        # News without a time has the current time.
        ordered.sort(key=lambda news: float("inf") if news.time is None else news.time)
        return [self._not_back(news) for news in [*untimed, *ordered] if news.text]

    def _not_back(self, news: News) -> News:
        """Gives news that come a little late the time of those before: tasks are heard one by one."""
        if news.time is None:
            self._latest = time.time()
            return news
        if self._latest - _LATE_SECONDS <= news.time < self._latest:
            return replace(news, time=self._latest)
        self._latest = max(self._latest, news.time)
        return news

    def _not_before(self, news: News) -> News:
        """Moves the end of a role behind the last record of its tasks."""
        spoke = self._spoke.get(_role(news))
        return news if news.time is None or spoke is None else replace(news, time=max(news.time, spoke))

    def _keep(self, line: LogLine) -> None:
        key = (line.role, line.index, line.attempt)
        if line.record is not None:
            if isinstance(line.record.content, Failed):
                self._last_lines[key] = deque(maxlen=0)
            return
        if key not in self._last_lines:
            self._last_lines[key] = deque(maxlen=LAST_LINES)
            self._last_lines.pop((line.role, line.index, line.attempt - 2), None)
        if not task_output.is_chatter(line.text):
            self._last_lines[key].append(line.text)

    def _restarts(self, before: RunStatus | None, after: RunStatus) -> list[News]:
        """Returns the tasks that are retried, with their last lines where they have not reported an error,
        and those whose deleted pods are replaced.
        """
        earlier = {(task.role, task.index): task for task in before.tasks} if before else {}
        news = []
        for task in after.tasks:
            known = earlier.get((task.role, task.index))
            name = who(task.role, task.index, after)
            if before is not None and before.phase is not Phase.SUSPENDED and _has_taken_over(known, task):
                news.append(News(name, "its pod was deleted, and has been replaced", task.created))
            elif task.restarts > (known.restarts if known is not None else 0):
                attempt = task.before.attempt if task.before is not None else -1
                lines = self._last_lines.pop((task.role, task.index, attempt), ())
                news += [News(name, f"  | {text}", task.created) for text in lines]
                news.append(News(name, f"started again (restart {task.restarts})", task.created))
        return news

    def _of_record(self, line: LogLine, status: RunStatus, *, in_place: bool) -> News | None:
        record = line.record
        shown = None if record is None else presentation.of(record)
        if record is None or shown is None or (in_place and shown.in_place):
            return None
        # If a thousand workers say the same, the first line suffices.
        key = (line.role, -1 if shown.once_for_role else line.index, record.event)
        before, when = self._last_shown.get(key, (None, float("-inf")))
        if not shown.concerns(record.content, line.role, line.index, status):
            return None
        if not shown.logged(record.content, before, record.time - when):
            return None
        if isinstance(record.content, Notice):
            if (line.role, record.content.message) in self._notices:
                return None
            self._notices.add((line.role, record.content.message))
        self._last_shown[key] = record.content, record.time
        name = who(line.role, line.index, status)
        return News(name, presentation.describe(record), record.time, shown.tone(record.content) == "bad")


def _has_taken_over(before: TaskStatus | None, after: TaskStatus) -> bool:
    """Returns whether the task has another pod than before, which was deleted."""
    return before is not None and before.deleted and before.pod != after.pod


def _role(news: News) -> str:
    """Returns the role of a name: `worker` of `worker 1`."""
    return news.who.partition(" ")[0]


def _not_after(news: News, spoken: Iterable[tuple[str, float]]) -> News:
    """Moves the start of a role before the first record of its tasks."""
    times = [when for role, when in spoken if role == _role(news)]
    return replace(news, time=min([*times, *([] if news.time is None else [news.time])], default=None))


def restarts(pods: int, in_place: int) -> str:
    """Returns how often tasks were started again: `1`, or `1, 2 in place` if their pods have done it, too."""
    return f"{pods}, {in_place} in place" if in_place else f"{pods}"


def who(role: str, index: int, status: RunStatus) -> str:
    """Returns `worker 1`, or `chief` where the role has one task."""
    several = any(
        known.role == role and (known.desired > 1 or known.elastic is not None) for known in status.roles
    )
    return f"{role} {index}" if several else role


def waiting_tasks(status: RunStatus) -> Iterator[News]:
    """Yields which tasks wait for others, and why, as far as the tasks' latest records tell."""
    for task in status.tasks:
        records = status.records.get(task.name, {})
        waits = records.get(Event.WAITING)
        if waits is None or task.phase is not Phase.RUNNING:
            continue
        # Records from before a restart do not count.
        began = task.running or task.started or 0.0
        is_latest = waits.time >= max([began - 1, *(record.time for record in records.values())])
        if is_latest and isinstance(waits.content, Waiting) and waits.content.tasks:
            yield News(who(task.role, task.index, status), presentation.describe(waits), waits.time)


def bottleneck(bottleneck: bottlenecks.Bottleneck | None, status: RunStatus) -> str:
    """Returns `worker 3 on node n7 takes 2.1 times the median step: its input`; "" where nothing stands
    out.
    """
    if bottleneck is None:
        return ""
    tasks = {task.name: _on_node(task, status) for task in status.tasks}
    text = bottleneck.text
    if bottleneck.other in tasks:
        text = text.replace(bottleneck.other, tasks[bottleneck.other])
    return f"{tasks[bottleneck.task]} {text}" if bottleneck.task in tasks else text


def prechecks(status: RunStatus) -> list[str]:
    """Returns what all tasks have measured, and a sentence for each task that is far off; none before all
    have, or where the file does not ask for it.
    """
    if not precheck_outliers.is_complete(status):
        return []
    contents = precheck_outliers.measured(status)
    tasks = {task.name: task for task in status.tasks}
    return [
        f"precheck of {counted(len(contents), 'task')}: {precheck_outliers.ranges(contents.values())}",
        *(
            f"{_on_node(tasks[outlier.task], status)} is far off: it {outlier.text}"
            for outlier in precheck_outliers.of_run(status)
        ),
    ]


def _on_node(task: TaskStatus, status: RunStatus) -> str:
    node = f" on node {task.node}" if task.node else ""
    return f"{who(task.role, task.index, status)}{node}"


def beginnings(before: RunStatus | None, after: RunStatus) -> list[News]:
    """Returns what has begun between two statuses; with None, everything that has begun.

    For a role it tells when the first task began, unless all began at once, and when the last did.
    """
    news: list[News] = []
    if before is not None and before.phase is Phase.SUSPENDED and after.phase is Phase.RUNNING:
        news.append(News("run", "resumed"))
    for role in after.roles:
        had, has = _started(before, role.role), _started(after, role.role)
        if has > had and (had == 0 or has == role.desired):
            count = f"{has}" if has == role.desired else f"{has} of {role.desired}"
            text = f"{count} task{'' if count == '1' else 's'} started"
            news.append(News(role.role, text, _start(role.role, after, first=has < role.desired)))
    return news


def endings(before: RunStatus | None, after: RunStatus) -> list[News]:
    """Returns what has ended, or restarted, between two statuses."""
    all_news: list[News] = []
    if (before is None or before.phase is not after.phase) and after.phase in (Phase.SUSPENDED, Phase.LOST):
        all_news.append(
            News("run", f"{after.phase}".lower() + (f": {after.message}" if after.message else ""))
        )
    elif after.reason == ADMISSION and (before is None or before.message != after.message):
        all_news.append(News("run", after.message))
    earlier = {(task.role, task.index): task for task in before.tasks} if before else {}
    for task in after.tasks:
        name = who(task.role, task.index, after)
        news = _task_news(earlier.get((task.role, task.index)), task)
        all_news += (News(name, text, task.finished, bad=bad) for text, bad in news)
    known = {role.role: role for role in before.roles} if before else {}
    for role in after.roles:
        if role.role in known and (was := known[role.role].desired) != role.desired:
            all_news.append(News("run", f"is to have {counted(role.desired, role.role)}, {was} before"))
        ended = None if role.waiting else _end(role.role, after)
        waited = [other for name, other in known.items() if name != role.role]
        waited += after.roles[: after.roles.index(role)]
        if text := _role_end(known.get(role.role), role, after, waited):
            all_news.append(News(role.role, text, ended, bad=text.startswith("failed")))
    return all_news


def _start(role: str, status: RunStatus, *, first: bool) -> float | None:
    """Returns when the first or the last of the role's tasks started, as far as it is known."""
    times = []
    for task in status.tasks:
        pods = [task] if task.before is None else [task.before, task]
        started = [time for pod in pods if (time := pod.running or pod.started) is not None]
        times += started[:1] if task.role == role else []
    return (min if first else max)(times, default=None)


def _end(role: str, status: RunStatus) -> float | None:
    """Returns when the last of the role's tasks ended; None where one still runs."""
    times = [task.finished for task in status.tasks if task.role == role]
    known = [time for time in times if time is not None]
    return max(known, default=None) if len(known) == len(times) else None


def _started(status: RunStatus | None, role: str) -> int:
    """Returns how many of the role's tasks have started; a task that restarts counts."""
    tasks = status.tasks if status is not None else ()
    return sum(task.role == role and _has_started(task) for task in tasks)


def _has_started(task: TaskStatus) -> bool:
    if task.restarts > 0:
        return True
    # A pod that is deleted before its container ran ends as Failed, too.
    never_ran = task.deleted and task.running is None
    return task.phase is not Phase.PENDING and not never_ran


def _task_news(before: TaskStatus | None, after: TaskStatus) -> list[tuple[str, bool]]:
    news = []
    if after.message and after.phase is Phase.RUNNING and (before is None or before.message != after.message):
        news.append((after.message, False))
    failed = after.phase is Phase.FAILED and not after.deleted
    is_news = before is None or before.phase is not Phase.FAILED or before.restarts != after.restarts
    if failed and is_news:
        is_known = before is not None and before.phase is Phase.RUNNING and before.message == after.message
        news.append((ending(replace(after, message="") if is_known else after), True))
    return news


def ending(task: TaskStatus) -> str:
    """Returns how a task failed: `ended with exit code 137 (SIGKILL)`."""
    if task.reason == "StartError":
        return f"could not be started: {task.message}"
    code = task.exit_code
    text = "failed" if code is None else f"ended with exit code {code}{_signal_name(code)}"
    return f"{text}: {task.message}" if task.message else text


def duration(seconds: float) -> str:
    """Returns `59.9 s`, `2 min 0 s`, `1 h 0 min`."""
    if seconds < 59.95:
        return f"{max(0.0, seconds):.1f} s"
    return whole_seconds(seconds)


def whole_seconds(seconds: float) -> str:
    """Returns `59 s`, `2 min 0 s`, `1 h 0 min`."""
    # Round first: otherwise 119.7 s would become 1 min 60 s.
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def waiting(role: RoleStatus, others: Iterable[RoleStatus] = ()) -> str:
    """Returns why a role's tasks do not start: `waits (Unschedulable): 0/3 nodes are available`. Where one of
    the `others` waits for the same, just its name stands for it.
    """
    for other in others:
        if other.waiting and (other.reason, _cause(other)) == (role.reason, _cause(role)):
            return f"waits ({role.reason}), as {other.role} does"
    return f"waits ({role.reason}): {role.message}"


def _cause(role: RoleStatus) -> str:
    """Returns the message without how many tasks it is true of."""
    return role.message.partition(" tasks: ")[2] or role.message


def event(event: RunEvent) -> str:
    """Returns one line: `2026-01-31 12:00:00 worker 1 FailedScheduling 0/3 nodes are available (3 times)`."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.time))
    times = f" ({event.count} times)" if event.count > 1 else ""
    mark = "!" if event.warning else " "
    return f"{when} {mark} {event.about:<12} {event.reason}: {event.message}{times}"


def findings(
    findings: Sequence[Finding],
    works: str = "a run can be submitted",
    fails: str = "a run cannot be submitted here",
) -> Iterator[str]:
    """Yields a line for each finding, a line with what to do about it, and the conclusion."""
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        yield f"{finding.verdict:<8} {finding.subject:<{width}}  {finding.message}"
        if finding.advice:
            yield f"{'':<{width + 9}}  {finding.advice}"
    missing = [finding.subject for finding in findings if finding.verdict == "missing"]
    yield ""
    yield f"{fails}: see {', '.join(missing)}" if missing else works


def left_out(lines: int) -> str:
    """Returns a sentence about lines of a log that are not shown."""
    what = "1 line" if lines == 1 else f"{lines} lines"
    return f"left out {what} that TensorFlow prints at every start; --raw shows all"


def _signal_name(code: int) -> str:
    try:
        return f" ({signal.Signals(code - 128).name})" if code > 128 else ""
    except ValueError:
        return ""


def ready(role: RoleStatus) -> str:
    """Returns how many tasks of the role run: `1`; of elastic workers `6 of 8, at least 2`."""
    if role.elastic is None or role.phase in (Phase.SUCCEEDED, Phase.FAILED):
        return f"{role.ready}"
    return f"{role.ready} of {role.desired}, at least {role.elastic.min}"


def stopped_with_run(role: RoleStatus, status: RunStatus) -> str:
    """Returns a word for the end of a role that has not failed itself, but was stopped with the run; else "".

    Released tasks have left with exit code 0. If the run fails, their Job ends as failed nevertheless,
    because it is complete only when as many tasks have succeeded as it has.
    """
    if role.phase is not Phase.FAILED or role.reason not in (RUN_ENDED, RUN_FAILED):
        return ""
    role_tasks = [task for task in status.tasks if task.role == role.role]
    if status.last_failure(role.role) is not None:
        return ""
    return "released" if role_tasks and all(task.exit_code == 0 for task in role_tasks) else "stopped"


def _role_end(
    before: RoleStatus | None, after: RoleStatus, status: RunStatus, others: Sequence[RoleStatus]
) -> str:
    if after.waiting:
        # The number of waiting tasks changes too often to be printed each time.
        return "" if before is not None and before.reason == after.reason else waiting(after, others)
    if before is not None and before.phase is after.phase:
        return ""
    if after.phase is Phase.SUCCEEDED:
        return "complete"
    if after.phase is Phase.FAILED:
        if status.last_failure(after.role) is not None:
            return "failed"  # its task has reported why, and the summary has the Job's message
        failed = f"failed: {after.message}" if after.message else "failed"
        return stopped_with_run(after, status) or failed
    return ""
