"""Follows a run: with a live view on a terminal, elsewhere line by line."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from launcher import sentences
from launcher.backends.base import PROGRAM, Backend, LogLine
from launcher.cli.console import RoleTable, console, exit_code, headline, reasons, show_summary
from launcher.cli.interrupts import Interrupts
from launcher.errors import ConflictError
from launcher.status import Phase, RunStatus, latest
from launcher.task_records import bottlenecks, checkpoint_age, record_sentences
from launcher.task_records.remaining_time import Pace
from launcher.task_records.task_output import is_chatter
from launcher.terminal import visible_all
from worker.contract.records import Evaluation, Progress

_FRAMES_PER_SECOND: Final = 8
_BAR_WIDTH: Final = 40
"""Columns, if the terminal has enough."""


def watch(
    backend: Backend,
    run: str,
    namespace: str,
    *,
    stop_on_interrupt: bool,
    until_running: bool = False,
    timeout: float | None = None,
    printing: str = "",
    out: Console | None = None,
    interrupts: Interrupts | None = None,
) -> int:
    """Follows the run to its end, prints its summary and cleans up; or follows it until every task runs.
    Returns the command's exit code. The output of the first task of the role `printing` is shown.

    Ctrl-C and SIGTERM stop the run, and a second one stops it at once. Without `stop_on_interrupt` they end
    only the watching, and the run continues. `interrupts` counts those since before this call. Raises
    ConflictError when the run has not ended after `timeout` seconds.
    """
    out = out or console()
    began = time.monotonic()
    status: RunStatus | None = None
    seen: RunStatus | None = None
    obeyed = 0
    with contextlib.ExitStack() as stack:
        interrupts = interrupts or stack.enter_context(Interrupts())
        view = stack.enter_context(View(out, printing))
        for update in backend.follow(run, namespace):
            if update.status is not seen:
                seen = update.status
                status = visible_all(seen, out.is_terminal)
            assert status is not None  # noqa: S101 - for the type checker
            view.show(status, visible_all(update.lines, out.is_terminal))
            if interrupts.count > obeyed and not status.ended:
                obeyed = interrupts.count
                if not stop_on_interrupt:
                    run_arguments = run + backend.options(namespace)
                    view.say("run", f"is still running; `{PROGRAM} wait {run_arguments}` follows it again")
                    return interrupts.exit_code
                at_once = obeyed > 1
                backend.stop(run, namespace, at_once=at_once)
                view.say("run", "is killed" if at_once else "is being stopped; Ctrl-C again kills it")
            if until_running and status.all_run:
                view.say("run", "all tasks are running")
                return 0
            if timeout is not None and not status.ended and time.monotonic() - began >= timeout:
                done = "come to run" if until_running else "ended"
                raise ConflictError(
                    f"run {run} has not {done} within {timeout:g} s",
                    f"It is still running; `{PROGRAM} wait {run}{backend.options(namespace)}` waits on",
                )
    if status is None:
        raise ConflictError(f"nothing is known of run {run}")
    show_summary(backend, status, out)
    if interrupts.count:
        return interrupts.exit_code
    if notice := backend.clean(run, namespace):
        print(notice, file=sys.stderr)
    return exit_code(status)


class View:
    """Prints a line for each event; on a terminal, the current state below them. A thread draws the state, so
    that it moves while the backend sends nothing.
    """

    def __init__(self, out: Console, printing: str = "") -> None:
        self._out = out
        self._printing = printing
        self._narrator = sentences.Narrator()
        self._began = time.time()
        self._status: RunStatus | None = None
        self._pace = Pace()
        self._live: Live | None = None
        if out.is_terminal and not out.is_dumb_terminal:
            spinner = "line" if out.options.ascii_only else "dots"
            self._spinner = Spinner(spinner, style="cyan")
            self._live = Live(
                console=out,
                get_renderable=self._picture,
                refresh_per_second=_FRAMES_PER_SECOND,
                transient=True,
                redirect_stdout=False,
            )

    def __enter__(self) -> View:
        if self._live is not None:
            self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, status: RunStatus, lines: Sequence[LogLine]) -> None:
        """Takes the run's current status, and the lines that its tasks have printed since the last call."""
        self._began = status.started or self._began
        for line in lines:
            if line.record is not None:
                self._pace.add(line.record)
            elif (line.role, line.index) == (self._printing, 0) and not is_chatter(line.text):
                self._out.print(Text(line.text))
        for news in self._narrator.news(status, lines, in_place=self._live is not None):
            self.say(news.who, news.text, at=news.time, bad=news.bad)
        self._status = status

    def say(self, name: str, text: str, at: float | None = None, bad: bool = False) -> None:
        """Prints a line that stays."""
        elapsed = max(0.0, (at or time.time()) - self._began)
        styled = (text, "red" if bad else "")
        self._out.print(Text.assemble((f"{elapsed:7.1f} s  ", "dim"), (f"{name:<10} ", "bold"), styled))
        if not self._out.is_terminal:
            self._out.file.flush()

    def _picture(self) -> RenderableType:
        """Returns the current state; the drawing thread calls it."""
        now = time.time()
        frame = self._spinner.render(self._out.get_time())
        assert isinstance(frame, Text)  # noqa: S101 - the spinner has no text of its own
        if self._status is None:
            return _Cropped(Text.assemble("\n", frame, " looking at the run"))
        return _Cropped(picture(self._status, self._pace, now, frame))


def picture(status: RunStatus, pace: Pace, now: float, frame: Text) -> RenderableType:
    """Returns the run at the time `now`: its roles, and the training's progress. `frame` is the spinner's."""
    parts: list[RenderableType] = [Text(), Text.assemble(frame, " ", headline(status, now))]
    parts.append(RoleTable(status, frame))
    parts += reasons(status)
    if status.phase is Phase.RUNNING:
        parts += _training(status, pace, now)
    return Group(*parts)


def _training(status: RunStatus, pace: Pace, now: float) -> Iterator[RenderableType]:
    progress = latest(status.records, Progress)
    if progress is not None:
        remaining = pace.remaining(now)
        known = remaining is not None and pace.done < 1
        eta = f"  ETA {sentences.whole_seconds(remaining or 0)}" if known else ""
        yield _Bar(pace.done, f" {100 * pace.done:3.0f}%{eta}")
        yield _wrapped(record_sentences.position(progress))
        yield _wrapped(record_sentences.measures(progress))
    elif text := record_sentences.predicted(status):
        yield _wrapped(text)
    if (evaluation := latest(status.records, Evaluation)) is not None:
        yield _wrapped(record_sentences.evaluation(evaluation))
    if text := sentences.bottleneck(bottlenecks.of_run(status, now), status):
        yield Text(text, style="yellow", no_wrap=False, overflow="fold")
    if (saved := checkpoint_age.of_run(status, now)) is not None:
        yield Text(saved[0], style="red" if saved[1] else "dim", no_wrap=False, overflow="fold")


def _wrapped(text: str) -> Text:
    return Text(text, no_wrap=False, overflow="fold")


class _Bar:
    """A bar with text after it. The bar takes the columns that the text leaves."""

    def __init__(self, done: float, text: str) -> None:
        self._done = done
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(1, min(_BAR_WIDTH, options.max_width - len(self._text)))
        row = Table.grid()
        row.add_row(ProgressBar(total=1.0, completed=self._done, width=width), Text(self._text))
        yield row


class _Cropped:
    """Cuts each line to the terminal's width: a longer line would take two lines, and the next drawing would
    overwrite only one.
    """

    def __init__(self, content: RenderableType) -> None:
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        options = options.update(no_wrap=True, overflow="ellipsis")
        for line in console.render_lines(self._content, options, pad=False):
            yield from line
            yield Segment.line()
