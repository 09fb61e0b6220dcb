"""A terminal that records a command's output while it runs, and afterwards."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import pyte

SECONDS: Final = 240.0
"""Limit of any wait of a test."""

_PAUSE_SECONDS: Final = 0.05
"""Shorter than the time between two pictures of a live view, and longer than it takes to write one."""


class Terminal:
    """The screen, and the lines that have scrolled off it, while a command runs in it."""

    def __init__(self, columns: int, rows: int, process: subprocess.Popen[bytes], controller: int) -> None:
        self.process = process
        self._controller = controller
        self._screen = pyte.HistoryScreen(columns, rows, history=10_000)
        self._stream = pyte.ByteStream(self._screen)
        self._deadline = time.monotonic() + SECONDS

    @property
    def lines(self) -> list[str]:
        """Returns the lines from the first one, without empty ones at the end."""
        screen = self._screen
        gone = ["".join(row[x].data for x in range(screen.columns)) for row in screen.history.top]
        return "\n".join(line.rstrip() for line in [*gone, *screen.display]).rstrip().split("\n")

    def colour(self, text: str) -> str:
        """Returns the colour of the first letter of a text on the screen, such as `red`."""
        for number, line in enumerate(self._screen.display):
            if (column := line.find(text)) >= 0:
                return str(self._screen.buffer[number][column].fg)
        raise AssertionError(f"{text!r} is not on the screen:\n" + "\n".join(self.lines))

    def pictures(self) -> Iterator[list[str]]:
        """Yields the screen whenever the command has written something and pauses, until it has ended."""
        while self._read():
            if not select.select([self._controller], [], [], _PAUSE_SECONDS)[0]:
                yield self.lines
        yield self.lines
        self.process.wait(SECONDS)

    def until(self, seen: Callable[[list[str]], bool]) -> list[str]:
        """Returns the first picture for which this holds."""
        for lines in self.pictures():
            if seen(lines):
                return lines
        raise AssertionError("never seen; at the end:\n" + "\n".join(self.lines))

    def to_the_end(self) -> list[str]:
        """Returns the last picture."""
        return [self.lines, *self.pictures()][-1]

    def resize(self, columns: int) -> None:
        """Gives the terminal another width. What is on the screen is cut there, as xterm does."""
        size = struct.pack("HHHH", self._screen.lines, columns, 0, 0)
        fcntl.ioctl(self._controller, termios.TIOCSWINSZ, size)
        self._screen.resize(columns=columns)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._controller], [], [], max(0.0, self._deadline - time.monotonic()))
        assert ready, "the command neither writes nor ends:\n" + "\n".join(self.lines)
        try:
            data = os.read(self._controller, 1 << 16)
        except OSError:  # Linux raises it once no process has the terminal open
            return False
        self._stream.feed(data)
        return bool(data)


@contextmanager
def terminal(
    command: Sequence[str], columns: int, rows: int = 50, environment: Mapping[str, str] | None = None
) -> Iterator[Terminal]:
    """Runs the command in a terminal of this size, and kills it after the block if it still runs."""
    controller, its_end = pty.openpty()
    fcntl.ioctl(its_end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    variables = {**os.environ, **(environment or {}), "TERM": "xterm-256color"}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        variables.pop(name, None)
    process = subprocess.Popen(
        command, stdin=its_end, stdout=its_end, stderr=its_end, env=variables, start_new_session=True
    )
    os.close(its_end)
    try:
        yield Terminal(columns, rows, process, controller)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(controller)
