"""Shows a run: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from types import FrameType, TracebackType
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from launcher import evaluator_outcome, messages, task_devices
from launcher.backends.base import PROGRAM, Backend, LogLine, Selection
from launcher.errors import INTERRUPTED, BackendError, ConflictError
from launcher.status import ADMISSION, Phase, RoleStatus, RunStatus, TaskStatus, latest
from launcher.terminal import visible_all
from worker.contract import Evaluation, Exported, Predicted, Progress

_REPAINT_SECONDS: Final = 0.25
_MOST_TROUBLED: Final = 5
"""Tasks whose logs `status` reads."""
_LAST_LINES: Final = 20
"""Of a failed task's log, where it has not said itself what is wrong."""

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
    """On standard output unless told otherwise; colours on a terminal only."""
    return Console(file=file, highlight=False, markup=False, emoji=False, soft_wrap=True)


def watch(
    backend: Backend,
    run: str,
    namespace: str,
    *,
    stop_on_interrupt: bool,
    until_running: bool = False,
    timeout: float | None = None,
    out: Console | None = None,
) -> int:
    """Follows the run to its end, then prints its summary; or until every task runs. Returns the command's
    exit code.

    Ctrl-C and SIGTERM stop the run, the second time at once; without `stop_on_interrupt` they end the
    watching, and the run goes on. Raises ConflictError when the run has not ended after `timeout` seconds.
    """
    out = out or console()
    began = time.monotonic()
    status: RunStatus | None = None
    seen: RunStatus | None = None
    obeyed = 0
    with _Interrupts() as interrupts, _View(out) as view:
        for update in backend.follow(run, namespace):
            if update.status is not seen:
                seen = update.status
                status = visible_all(seen, out.is_terminal)
            assert status is not None  # noqa: S101 - for the type checker
            view.show(status, visible_all(update.lines, out.is_terminal))
            if interrupts.count > obeyed and not status.ended:
                obeyed = interrupts.count
                if not stop_on_interrupt:
                    found = run + backend.options(namespace)
                    view.say("run", f"goes on; `{PROGRAM} wait {found}` comes back to it")
                    return interrupts.exit_code
                at_once = obeyed > 1
                backend.stop(run, namespace, at_once=at_once)
                view.say("run", "is killed" if at_once else "is being stopped; Ctrl-C again kills it")
            if until_running and status.all_run:
                view.say("run", "every task runs")
                return 0
            if timeout is not None and not status.ended and time.monotonic() - began >= timeout:
                done = "come to run" if until_running else "ended"
                raise ConflictError(
                    f"run {run} has not {done} within {timeout:g} s",
                    f"It goes on; wait longer with: {PROGRAM} wait {run}{backend.options(namespace)}",
                )
    if status is None:
        raise ConflictError(f"nothing is known of run {run}")
    show_summary(backend, status, out)
    if interrupts.count:
        return interrupts.exit_code
    return exit_code(status)


def exit_code(status: RunStatus) -> int:
    """Of a command that has waited for the run's end."""
    return 0 if status.phase is Phase.SUCCEEDED else 1


class _Interrupts:
    """Counts SIGINT and SIGTERM, in place of a KeyboardInterrupt somewhere in the middle."""

    def __init__(self) -> None:
        self.count = 0
        self._last = signal.SIGINT
        self._before: dict[signal.Signals, Any] = {}

    @property
    def exit_code(self) -> int:
        return INTERRUPTED if self._last is signal.SIGINT else 128 + self._last

    def __enter__(self) -> _Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, _: FrameType | None) -> None:
        self.count += 1
        self._last = signal.Signals(number)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


class _View:
    """Lines for what has happened; on a terminal, below them, a table of what is going on."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._narrator = messages.Narrator()
        self._began = time.time()
        self._painted = 0.0
        self._live: Live | None = None
        if out.is_terminal:
            self._live = Live(console=out, auto_refresh=False, transient=True, redirect_stdout=False)

    def __enter__(self) -> _View:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, status: RunStatus, lines: Sequence[LogLine]) -> None:
        self._began = status.started or self._began
        # A table in motion shows the steps; the epochs' ends are worth keeping there too.
        for news in self._narrator.news(status, lines, steps=self._live is None):
            self.say(news.who, news.text, at=news.time, bad=news.bad)
        if self._live is not None and time.monotonic() - self._painted >= _REPAINT_SECONDS:
            self._painted = time.monotonic()
            self._live.update(live_table(status, reasons(status)), refresh=True)

    def say(self, name: str, text: str, at: float | None = None, bad: bool = False) -> None:
        elapsed = max(0.0, (at or time.time()) - self._began)
        said = (text, "red" if bad else "")
        self._out.print(Text.assemble((f"{elapsed:7.1f} s  ", "dim"), (f"{name:<10} ", "bold"), said))
        if not self._out.is_terminal:
            self._out.file.flush()


def live_table(status: RunStatus, why: Iterable[RenderableType] = ()) -> RenderableType:
    """The roles, `why` they wait, and how far the training is."""
    parts: list[RenderableType] = [_role_table(status), *why]
    progress = latest(status.records, Progress)
    if progress is not None and status.phase is Phase.RUNNING:
        row = Table.grid(padding=(0, 1))
        bar: RenderableType = ""
        if progress.steps is not None and 0 < progress.steps < 1 << 53:
            bar = ProgressBar(total=progress.steps, completed=progress.step, width=20)
        row.add_row(messages.position(progress), bar, messages.measures(progress))
        parts.append(row)
    elif (text := messages.predicted(status)) and status.phase is Phase.RUNNING:
        parts.append(Text(text))
    return Padding(Group(*parts), (1, 0, 0, 0))


def reasons(status: RunStatus) -> Iterator[RenderableType]:
    """Why roles do not start, in the cluster's own words."""
    if status.reason == ADMISSION:
        yield Text(status.message, style="yellow")
    for role in status.roles:
        if role.waiting:
            yield Text(f"{role.role} {messages.waiting(role)}", style="yellow")


def _role_table(status: RunStatus) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    placed = any(task.node for task in status.tasks)
    table.add_column("ROLE")
    for heading in ("READY", "SUCCEEDED", "FAILED", "RESTARTS"):
        table.add_column(heading, justify="right")
    if placed:
        table.add_column("NODE")
    table.add_column("STATE")
    for role in status.roles:
        cells = [role.role, str(role.ready), f"{role.succeeded}/{role.desired}", str(role.failed)]
        cells.append(str(role.restarts))
        if placed:
            cells.append(_nodes(role, status))
        table.add_row(*cells, Text(_state(role), style=STYLES[role.phase]))
    return table


def _nodes(role: RoleStatus, status: RunStatus) -> str:
    """The role's node, or how many there are."""
    nodes = {task.node for task in status.tasks if task.role == role.role and task.node}
    return f"{len(nodes)} nodes" if len(nodes) > 1 else "".join(nodes)


def _state(role: RoleStatus) -> str:
    """Kubernetes' own words for a Job's end."""
    if role.phase is Phase.SUCCEEDED:
        return "Complete"
    telling = role.phase is Phase.FAILED or role.waiting
    return f"{role.phase} ({role.reason})" if role.reason and telling else str(role.phase)


def show_status(backend: Backend, status: RunStatus, out: Console | None = None) -> None:
    """The `status` command."""
    out = out or console()
    status = visible_all(status, out.is_terminal)
    if status.ended:
        show_summary(backend, status, out)
        return
    _headline(status, out)
    out.print(live_table(status))
    # Whole: what a queue or a scheduler says is longer than a line, which a table would cut off.
    for reason in reasons(status):
        out.print(reason)
    for news in messages.waiting_tasks(status):
        out.print(Text(f"{news.who} {news.text}", style="yellow"))
    troubled = [task for task in status.tasks if not task.deleted and _troubled(task)]
    for task in troubled[:_MOST_TROUBLED]:
        _show_trouble(backend, status, task, out)
    if len(troubled) > _MOST_TROUBLED:
        out.print(f"and {len(troubled) - _MOST_TROUBLED} tasks more that failed or were started again")
    for _, text, bad in task_devices.of_run(status):
        out.print(Text(text, style="red" if bad else ""))
    if (evaluation := latest(status.records, Evaluation)) is not None:
        out.print(messages.evaluation(evaluation))


def _troubled(task: TaskStatus) -> bool:
    return task.phase is Phase.FAILED or (task.restarts > 0 and task.phase is not Phase.SUCCEEDED)


def _show_trouble(backend: Backend, status: RunStatus, task: TaskStatus, out: Console) -> None:
    """A task that failed, or was started again: how its last pod ended, and its last lines."""
    name = messages.who(task.role, task.index, status)
    ended = task if task.phase is Phase.FAILED else task.before
    if ended is None:
        return
    restarts = f"started again {task.restarts} times; the last time it " if ended is not task else ""
    out.print(f"{name}: {restarts.replace(' 1 times', ' once')}{messages.ending(ended)}")
    said, details = visible_all(_last_words(backend, status, ended, messages.LAST_LINES), out.is_terminal)
    out.print(Padding(Text(f"{said}\n{details}".rstrip()), (0, 0, 0, 2), expand=False))


def show_summary(backend: Backend, status: RunStatus, out: Console | None = None) -> None:
    """How a run has ended, what it leaves and where; of a failed one, why."""
    out = out or console()
    status = visible_all(status, out.is_terminal)
    out.print()
    _headline(status, out)
    out.print()
    out.print(_role_table(status))
    out.print()
    if trouble := evaluator_outcome.trouble(status):
        out.print(Text(trouble, style="bold red"))
        out.print()
    if status.phase is not Phase.SUCCEEDED or trouble:
        _explain(backend, status, out, (evaluator_outcome.EVALUATOR,) if trouble else None)
    rows = [
        (name, text.removeprefix(task_devices.COUNT), bad) for name, text, bad in task_devices.of_run(status)
    ]
    rows += ((name, text, False) for name, text in _results(backend, status))
    width = max(len(name) for name, _, _ in rows)
    for name, text, bad in rows:
        shown = visible_all(text, out.is_terminal)
        out.print(Text.assemble((f"{name:<{width}}  ", "dim"), (shown, "red" if bad else "")))


def _headline(status: RunStatus, out: Console) -> None:
    until = status.finished or (time.time() if not status.ended else None)
    took = f" after {messages.duration(until - status.started)}" if status.started and until else ""
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
    out.print(Text.assemble((f"run {status.run} {words[status.phase]}", f"bold {style}"), took))


def _results(backend: Backend, status: RunStatus) -> Iterator[tuple[str, str]]:
    if (evaluation := latest(status.records, Evaluation)) is not None:
        when = f" (after epoch {evaluation.epoch})" if evaluation.epoch is not None else ""
        yield "evaluation", messages.metrics(evaluation.metrics) + when
    elif (progress := latest(status.records, Progress)) is not None:
        yield "training", messages.progress(progress)
    if (predicted := latest(status.records, Predicted)) is not None:
        yield "predictions", messages.predictions(predicted)
    elif text := messages.predicted(status):
        yield "predictions", text
    if (exported := latest(status.records, Exported)) is not None:
        yield "export", exported.path
    yield from backend.places(status.run, status.namespace).items()
    found = status.run + backend.options(status.namespace)
    yield "show logs", f"{PROGRAM} logs {found}"
    if status.phase is Phase.LOST:
        yield "go on", f"submit it again (from its last backup), or {PROGRAM} delete {found}"


def _explain(backend: Backend, status: RunStatus, out: Console, roles: Sequence[str] | None = None) -> None:
    """The tasks' own words, or those of `roles`: the record that a failed one left, else its log's end."""
    if status.message:
        out.print(Text(status.message, style="red"))
        out.print()
    said: set[tuple[str, str]] = set()
    for task in status.failures:
        if roles is not None and task.role not in roles:
            continue
        words = visible_all(_last_words(backend, status, task, _LAST_LINES), out.is_terminal)
        if words in said:
            continue  # a program that does not import fails so in every role
        said.add(words)
        name = messages.who(task.role, task.index, status)
        out.print(Text.assemble((f"{name} {messages.ending(task)}", "bold red"), f"  {words[0]}"))
        if words[1]:
            out.print(Padding(Text(words[1].rstrip()), (0, 0, 0, 2), expand=False))
        out.print()


def _last_words(backend: Backend, status: RunStatus, task: TaskStatus, most: int) -> tuple[str, str]:
    if (failed := status.failure_record(task)) is not None:
        return failed.message, failed.traceback
    selection = Selection((task.role,), (task.index,))
    lines: deque[str] = deque(maxlen=most)
    try:
        for line in backend.logs(status.run, status.namespace, selection, follow=False):
            if line.attempt == task.attempt and line.record is None:
                lines.append(line.text)
    except BackendError as error:
        return f"Its log cannot be read: {error.message}", ""  # its node does not answer, say
    return ("The end of its log:", "\n".join(lines)) if lines else ("It has printed nothing.", "")


def show_logs(
    lines: Iterable[LogLine], *, raw: bool = False, timestamps: bool = False, out: Console | None = None
) -> bool:
    """The `logs` command: `worker-1 | text`. Records are put into words; `raw` gives each line as the task
    printed it, without a prefix. On a terminal all of it is visible text; elsewhere it is as it was printed.
    Returns whether there was a line.
    """
    out = out or console()
    styles: dict[str, str] = {}
    some = False
    for line in (visible_all(each, out.is_terminal) for each in lines):
        some = True
        when = f"{_timestamp(line.time)} " if timestamps else ""
        if raw:
            print(f"{when}{line.text}", file=out.file, flush=True)
            continue
        style = styles.setdefault(line.role, _ROLE_STYLES[len(styles) % len(_ROLE_STYLES)])
        text = line.text if line.record is None else messages.describe(line.record) or line.text
        prefix = f"{f'{line.role}-{line.index}':<11} | "
        bold = "bold" if line.record is not None else ""
        out.print(Text.assemble((when, "dim"), (prefix, style), (text, bold)))
        if not out.is_terminal:
            out.file.flush()
    return some


def _timestamp(seconds: float | None) -> str:
    """RFC 3339 with milliseconds, as wide as where it is not known."""
    if seconds is None:
        return f"{'-':<24}"
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
