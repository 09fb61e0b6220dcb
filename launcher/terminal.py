"""What reaches the user: without secrets, and on a terminal without characters that command it."""

from __future__ import annotations

import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO

from launcher.redaction import redacted, redacted_message

_COLOURS: Final = re.compile(r"\x1b\[[0-9;:]*m")
"""They only colour: left out, the text is as its author meant it."""

_COMMANDS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and line feed, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks, embeddings, overrides and isolates of direction
    "\u2028\u2029\ufff9-\ufffb\ud800-\udfff]"  # separators, annotations, surrogates
    "|[\U000e0000-\U000e007f]"  # tags, which no terminal shows
)
_PLAIN: Final = re.compile(r"[\t\n\x20-\x7e]*")


def visible(text: str) -> str:
    r"""The text with each character that would command a terminal, or turn the text's direction, as an escape
    that is read: `\x1b`, `\u202e`. Colours are left out. Tabs and line ends stay.
    """
    if _PLAIN.fullmatch(text):
        return text
    return _COMMANDS.sub(_escaped, _COLOURS.sub("", text).replace("\r\n", "\n"))


def visible_line(text: str) -> str:
    r"""The same, of what belongs on one line: a line end in it is shown too, as `\n`."""
    return visible(text).replace("\n", "\\n")


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    named = {0x0D: "\\r"}
    if code in named:
        return named[code]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class Guarded:
    """A stream that lets no secret pass and, where it is a terminal, no commands to it.

    `own_words`: what is written is ours, and what looks like a secret is taken out too. `rich_proxied_file`
    is where rich writes, whose colours are commands, and which is given visible text.
    """

    def __init__(self, stream: TextIO, *, own_words: bool, colours: bool = False) -> None:
        self._stream = stream
        self._redacted: Callable[[str], str] = redacted_message if own_words else redacted
        self._plain = stream.isatty() and not colours
        if not colours:
            self.rich_proxied_file = Guarded(stream, own_words=own_words, colours=True)

    def write(self, text: str) -> int:
        """As the stream's own. Returns the length of the text that was given."""
        written = self._redacted(text)
        self._stream.write(visible(written) if self._plain else written)
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """As the stream's own."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def guarded(*, debug: bool) -> Iterator[None]:
    """Standard output and error pass a guard, and so does what a thread dies of: one line, with `debug` all
    of it. What an encoding lacks is written as an escape.
    """
    before = sys.stdout, sys.stderr, threading.excepthook
    for stream in before[:2]:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")

    def hook(failure: threading.ExceptHookArgs) -> None:
        if failure.exc_type is SystemExit:
            return
        if debug:
            traceback.print_exception(failure.exc_type, failure.exc_value, failure.exc_traceback)
            return
        name = getattr(failure.thread, "name", "")
        print(
            f"error in the launcher itself, thread {name}: {failure.exc_type.__name__}: {failure.exc_value}",
            file=sys.stderr,
        )

    guards: tuple[Any, Any] = Guarded(before[0], own_words=False), Guarded(before[1], own_words=True)
    sys.stdout, sys.stderr = guards
    threading.excepthook = hook
    try:
        yield
    finally:
        sys.stdout, sys.stderr, threading.excepthook = before
