"""Shows the state of runs, and the output of their tasks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from typing import Any, Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from launcher import sentences
from launcher.backends.base import PROGRAM, Backend, LogLine, Selection
from launcher.errors import BackendError
from launcher.status import ADMISSION, SUPERVISOR_LOST, Phase, RoleStatus, RunStatus, TaskStatus, latest
from launcher.task_records import (
    bottlenecks,
    checkpoint_age,
    evaluator_outcome,
    presentation,
    record_sentences,
    task_activity,
    task_devices,
    task_output,
)
from launcher.terminal import visible_all
from worker.contract.records import Evaluation, Exported, MembershipRecord, Predicted, Progress

UNBOUNDED: Final = 10_000
"""Columns of output that is not a terminal."""
_MOST_TROUBLED: Final = 5
"""Number of tasks whose logs `status` reads."""
_BY_EXIT_CODE = "PodFailurePolicy"
"""The reason of a Job that a task's exit code has ended; its message names the pod and the rule."""
_LAST_LINES: Final = 20
"""Lines of a failed task's log that are shown, where the task did not report its error."""

_DROPPED: Final = ("NODE", "RESTARTS", "FAILED", "SUCCEEDED", "READY")
"""The columns that are left out on a narrow terminal, in this order."""
_STATE_WIDTH: Final = 24
"""Columns of a state up to which other columns are left out for it; a longer state is cut."""

STYLES: Final = {
    Phase.PENDING: "dim",
    Phase.RUNNING: "cyan",
    Phase.SUSPENDED: "yellow",
    Phase.SUCCEEDED: "green",
    Phase.FAILED: "red",
    Phase.LOST: "red",
    Phase.BROKEN: "red",
}
_ROLE_STYLES: Final = ("cyan", "magenta", "blue", "yellow", "green")


def console(file: Any = None) -> Console:
    """Returns a console on standard output, or on `file`; colours on a terminal only, elsewhere
    whole lines.
    """
    made = Console(file=file, highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not made.is_terminal:
        made.width = UNBOUNDED
    return made


def exit_code(status: RunStatus) -> int:
    """Returns the exit code of a command that has waited for the run's end."""
    return 0 if status.phase is Phase.SUCCEEDED else 1


def reasons(status: RunStatus) -> Iterator[RenderableType]:
    """Yields why roles do not start, in Kubernetes' words."""
    if status.reason == ADMISSION:
        yield Text(status.message, style="yellow")
    for number, role in enumerate(status.roles):
        if role.waiting:
            yield Text(f"{role.role} {sentences.waiting(role, status.roles[:number])}", style="yellow")


class RoleTable:
    """A row for each role, with the columns that fit the terminal. `doing` is the frame of a spinner, shown
    before the activity of a role's tasks while they start.
    """

    def __init__(self, status: RunStatus, doing: Text | None = None) -> None:
        self._status = status
        self._doing = doing

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = [self._cells(role) for role in self._status.roles]
        headings = [name for name in rows[0] if any(cells[name].plain for cells in rows)] if rows else []
        # While the view moves, the columns stay the same, whatever the tasks do.
        longest = max((cells["STATE"].cell_len for cells in rows), default=0)
        width = _STATE_WIDTH if self._doing is not None else min(longest, _STATE_WIDTH)
        for dropped in ("", *_DROPPED):
            headings = [name for name in headings if name != dropped]
            fixed = [name for name in headings if name != "STATE"]
            table = _table(fixed, rows)
            needed = Measurement.get(console, options.update(width=UNBOUNDED), table).maximum
            if needed + 3 + width <= options.max_width:
                break
        yield _table(headings, rows)

    def _cells(self, role: RoleStatus) -> dict[str, Text]:
        counts = {
            "READY": sentences.ready(role),
            "SUCCEEDED": f"{role.succeeded}/{role.desired}",
            "FAILED": f"{role.failed}",
            "RESTARTS": sentences.restarts(role.restarts, self._status.restarts_in_place(role.role)),
            "NODE": _nodes(role, self._status),
        }
        cells = {"ROLE": Text(role.role), **{name: Text(text) for name, text in counts.items()}}
        return {**cells, "STATE": self._state(role)}

    def _state(self, role: RoleStatus) -> Text:
        """Returns Kubernetes' word for a Job's end; for a running role, the activity of its tasks."""
        if aside := sentences.stopped_with_run(role, self._status):
            return Text(aside, style="dim")
        if role.phase is Phase.SUCCEEDED:
            return Text("Complete", style="green")
        telling = role.phase is Phase.FAILED or role.waiting
        reason = f" ({role.reason})" if role.reason and telling else ""
        state = Text(f"{role.phase}{reason}", style=STYLES[role.phase], no_wrap=True, overflow="ellipsis")
        doing = task_activity.of_role(self._status, role.role) if role.phase is Phase.RUNNING else ""
        if not doing:
            return state
        if doing == presentation.IDLE or self._doing is None:
            return Text(doing, style=state.style, no_wrap=True, overflow="ellipsis")
        return Text.assemble(self._doing, " ", (doing, "cyan"), no_wrap=True, overflow="ellipsis")


def _table(headings: Sequence[str], rows: Sequence[dict[str, Text]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for name in headings:
        is_number = name not in ("ROLE", "NODE", "STATE")
        # Only a state is cut.
        table.add_column(name, justify="right" if is_number else "left", no_wrap=name != "STATE")
    for cells in rows:
        table.add_row(*(cells[name] for name in headings))
    return table


def _nodes(role: RoleStatus, status: RunStatus) -> str:
    """Returns the role's node, or the number of its nodes."""
    nodes = {task.node for task in status.tasks if task.role == role.role and task.node}
    return f"{len(nodes)} nodes" if len(nodes) > 1 else "".join(nodes)


def show_status(backend: Backend, status: RunStatus, out: Console | None = None) -> None:
    """Prints what the `status` command shows."""
    out = out or console()
    status = visible_all(status, out.is_terminal)
    if status.ended:
        show_summary(backend, status, out)
        return
    out.print(headline(status))
    out.print(live_table(status))
    for reason in reasons(status):
        out.print(reason)
    for news in sentences.waiting_tasks(status):
        out.print(Text(f"{news.who} {news.text}", style="yellow"))
    for number, text in enumerate(sentences.prechecks(status)):
        out.print(Text(text, style="yellow" if number else ""))
    if text := sentences.bottleneck(bottlenecks.of_run(status, time.time()), status):
        out.print(Text(text, style="yellow"))
    troubled = [task for task in status.tasks if not task.deleted and _troubled(task)]
    for task in troubled[:_MOST_TROUBLED]:
        _show_trouble(backend, status, task, out)
    if len(troubled) > _MOST_TROUBLED:
        out.print(f"and {len(troubled) - _MOST_TROUBLED} tasks more that failed or were started again")
    for _, text, bad in task_devices.of_run(status):
        out.print(Text(text, style="red" if bad else ""))
    if (members := latest(status.records, MembershipRecord)) is not None:
        out.print(Text(record_sentences.membership(members)))
    if (evaluation := latest(status.records, Evaluation)) is not None:
        out.print(record_sentences.evaluation(evaluation))
    if (saved := checkpoint_age.of_run(status)) is not None:
        out.print(Text(saved[0], style="red" if saved[1] else ""))


def live_table(status: RunStatus, why: Iterable[RenderableType] = ()) -> RenderableType:
    """Returns the roles, `why` they wait, and the training's progress."""
    parts: list[RenderableType] = [Text(), RoleTable(status), *why]
    if status.phase is Phase.RUNNING:
        progress = latest(status.records, Progress)
        text = record_sentences.predicted(status) if progress is None else record_sentences.progress(progress)
        parts += [Text(text)] if text else []
    return Group(*parts)


def _troubled(task: TaskStatus) -> bool:
    return task.phase is Phase.FAILED or (task.restarts > 0 and task.phase is not Phase.SUCCEEDED)


def _show_trouble(backend: Backend, status: RunStatus, task: TaskStatus, out: Console) -> None:
    """Prints, for a task that failed or restarted, how its last pod ended, and the last lines of its log."""
    name = sentences.who(task.role, task.index, status)
    ended = task if task.phase is Phase.FAILED else task.before
    if ended is None:
        return
    restarts = f"started again {task.restarts} times; the last time it " if ended is not task else ""
    out.print(f"{name}: {restarts.replace(' 1 times', ' once')}{sentences.ending(ended)}")
    message, details = visible_all(_last_words(backend, status, ended, sentences.LAST_LINES), out.is_terminal)
    out.print(Padding(Text(f"{message}\n{details}".rstrip()), (0, 0, 0, 2), expand=False))


def show_summary(backend: Backend, status: RunStatus, out: Console | None = None) -> None:
    """Prints how a run ended, which files it leaves and where; for a failed run, why it failed."""
    out = out or console()
    status = visible_all(status, out.is_terminal)
    out.print()
    out.print(headline(status))
    out.print()
    if trouble := evaluator_outcome.trouble(status):
        out.print(Text(trouble, style="bold red"))
        out.print()
    if status.phase is not Phase.SUCCEEDED or trouble:
        _explain(backend, status, out, (evaluator_outcome.EVALUATOR,) if trouble else None)
    out.print(RoleTable(status))
    out.print()
    rows = [
        (name, text.removeprefix(task_devices.COUNT), bad) for name, text, bad in task_devices.of_run(status)
    ]
    rows += ((name, text, False) for name, text in _results(backend, status))
    width = max(len(name) for name, _, _ in rows)
    for name, text, bad in rows:
        shown = visible_all(text, out.is_terminal)
        out.print(Text.assemble((f"{name:<{width}}  ", "dim"), (shown, "red" if bad else "")))


def headline(status: RunStatus, now: float | None = None) -> Text:
    """Returns the run's phase and its duration: `run mnist is running for 12 s`."""
    until = status.finished or ((now or time.time()) if not status.ended else None)
    is_over = bool(status.finished or status.ended)
    word, shown = ("after", sentences.duration) if is_over else ("for", sentences.whole_seconds)
    since = status.started if status.phase is not Phase.SUSPENDED else status.suspended
    took = f" {word} {shown(max(0.0, until - since))}" if since and until else ""
    words = {
        Phase.SUCCEEDED: "has succeeded",
        Phase.FAILED: "has failed",
        Phase.RUNNING: "is running",
        Phase.PENDING: "is starting",
        Phase.SUSPENDED: "is suspended",
        Phase.LOST: "is lost",
        Phase.BROKEN: "is broken",
    }
    style = STYLES[status.phase]
    return Text.assemble((f"run {status.run} {words[status.phase]}", f"bold {style}"), took)


def _results(backend: Backend, status: RunStatus) -> Iterator[tuple[str, str]]:
    if (evaluation := latest(status.records, Evaluation)) is not None:
        when = f" (after epoch {evaluation.epoch})" if evaluation.epoch is not None else ""
        yield "evaluation", record_sentences.metrics(evaluation.metrics) + when
    elif (progress := latest(status.records, Progress)) is not None:
        yield "training", record_sentences.progress(progress)
    if (predicted := latest(status.records, Predicted)) is not None:
        yield "predictions", record_sentences.predictions(predicted)
    elif text := record_sentences.predicted(status):
        yield "predictions", text
    if (exported := latest(status.records, Exported)) is not None:
        yield "export", exported.path
    yield from backend.places(status.run, status.namespace).items()
    run_arguments = status.run + backend.options(status.namespace)
    yield "show logs", f"{PROGRAM} logs {run_arguments}"
    if status.phase is Phase.LOST and status.reason == SUPERVISOR_LOST:
        yield "resume", f"submit it again (from its last backup), or {PROGRAM} delete {run_arguments}"


def _explain(backend: Backend, status: RunStatus, out: Console, roles: Sequence[str] | None = None) -> None:
    """Prints the errors of all tasks, or of those of `roles`: the record of a failed task, else the end of
    its log; then the message of the run's Job, unless it only says that one of these ended it.
    """
    shown: set[tuple[str, str]] = set()
    for task in status.failures:
        if roles is not None and task.role not in roles:
            continue
        words = visible_all(_last_words(backend, status, task, _LAST_LINES), out.is_terminal)
        if words in shown:
            continue  # a program that cannot be imported fails in the same way in every role
        shown.add(words)
        name = sentences.who(task.role, task.index, status)
        out.print(Text(f"{name} {sentences.ending(task)}", style="bold red"))
        out.print(Padding(Text("\n".join(words).rstrip()), (0, 0, 0, 2), expand=False))
        out.print()
    if status.message and not (shown and status.reason == _BY_EXIT_CODE):
        out.print(Text(status.message, style="dim" if shown else "red"))
        out.print()


def _last_words(backend: Backend, status: RunStatus, task: TaskStatus, most: int) -> tuple[str, str]:
    if (failed := status.failure_record(task)) is not None:
        return failed.message, failed.traceback
    selection = Selection((task.role,), (task.index,))
    lines: deque[str] = deque(maxlen=most)
    try:
        for line in backend.logs(status.run, status.namespace, selection, follow=False):
            if line.attempt == task.attempt and line.record is None and not task_output.is_chatter(line.text):
                lines.append(line.text)
    except BackendError as error:
        return f"Its log cannot be read: {error.message}", ""  # its node may not answer
    return ("The end of its log:", "\n".join(lines)) if lines else ("It has printed nothing.", "")


def show_logs(
    lines: Iterable[LogLine], *, raw: bool = False, timestamps: bool = False, out: Console | None = None
) -> tuple[int, int]:
    """Prints what the `logs` command shows: `worker-1 | text`. Records become sentences, and what TensorFlow
    prints at every start is left out; `raw` prints each line as the task printed it, without a prefix. On a
    terminal control characters are made visible; elsewhere the text is unchanged. Returns how many lines
    there were, and how many of them were left out.
    """
    out = out or console()
    styles: dict[str, str] = {}
    some = left_out = 0
    for line in (visible_all(each, out.is_terminal) for each in lines):
        some += 1
        when = f"{_timestamp(line.time)} " if timestamps else ""
        if raw:
            print(f"{when}{line.text}", file=out.file, flush=True)
            continue
        if line.record is None and task_output.is_chatter(line.text):
            left_out += 1
            continue
        style = styles.setdefault(line.role, _ROLE_STYLES[len(styles) % len(_ROLE_STYLES)])
        text = line.text if line.record is None else presentation.describe(line.record) or line.text
        prefix = f"{f'{line.role}-{line.index}':<11} | "
        bold = "bold" if line.record is not None else ""
        out.print(Text.assemble((when, "dim"), (prefix, style), (text, bold)))
        if not out.is_terminal:
            out.file.flush()
    return some, left_out


def _timestamp(seconds: float | None) -> str:
    """Returns the time by RFC 3339 with milliseconds; spaces of the same width where it is unknown."""
    if seconds is None:
        return f"{'-':<24}"
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
