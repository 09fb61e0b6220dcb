"""Guards all output: it removes secrets, and on a terminal also control characters.

Every command imports this, `--help` too: what few need is imported where they need it.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any, Final, TextIO, TypeVar, cast

from launcher.redaction import redacted, redacted_message

_COLOURS: Final = re.compile(r"\x1b\[[0-9;:]*m")
"""Sequences that only colour. They are removed, and the text keeps its meaning."""

_COMMANDS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and line feed, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks, embeddings, overrides and isolates of direction
    "\u2028\u2029\ufff9-\ufffb\ud800-\udfff]"  # separators, annotations, surrogates
    "|[\U000e0000-\U000e007f]"  # tags, which no terminal shows
)
_MOVES: Final = re.compile(r"(\x1b\[[0-9;:?]*[A-Za-z]|\r)")
_PLAIN: Final = re.compile(r"[\t\n\x20-\x7e]*")


T = TypeVar("T")


def visible(text: str) -> str:
    r"""Returns the text with control characters and marks of text direction as visible escapes: `\x1b`,
    `\u202e`. Colours are left out. Tabs and line ends stay.
    """
    if _PLAIN.fullmatch(text):
        return text
    return _COMMANDS.sub(_escaped, _COLOURS.sub("", text).replace("\r\n", "\n"))


def visible_all(value: T, on_terminal: bool = True) -> T:
    """Makes all text in the value visible, in tuples, lists, mappings and dataclasses too, since names,
    messages and lines come from other programs. Returns the value unchanged if the output is no terminal.
    """
    shown: Any = value
    if isinstance(value, Enum) or not on_terminal:
        return value
    if isinstance(value, str):
        shown = visible(value)
    elif isinstance(value, tuple | list):
        shown = type(value)(map(visible_all, value))
    elif isinstance(value, Mapping):
        shown = {visible_all(key): visible_all(each) for key, each in value.items()}
    elif hasattr(type(value), "__dataclass_fields__"):
        import dataclasses

        instance: Any = value
        changed = {each.name: getattr(value, each.name) for each in dataclasses.fields(instance) if each.init}
        shown = dataclasses.replace(instance, **{name: visible_all(each) for name, each in changed.items()})
    return cast("T", shown)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    named = {0x0D: "\\r"}
    if code in named:
        return named[code]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _only_moves(text: str) -> str:
    """Lets only colours and cursor movements pass, which rich writes."""
    if _PLAIN.fullmatch(text):
        return text
    parts = _MOVES.split(text)
    parts[::2] = [_COMMANDS.sub(_escaped, part) for part in parts[::2]]
    return "".join(parts)


def _as_it_is(text: str) -> str:
    return text


class Guarded:
    """A stream that removes secrets and, on a terminal, control characters.

    With `own_words` the text is the launcher's own, and text that looks like a secret is removed too. rich
    writes to `rich_proxied_file`: its colours are control sequences, and its text has been made visible
    before.
    """

    def __init__(self, stream: TextIO, *, own_words: bool, colours: bool = False) -> None:
        self._stream = stream
        self._redacted: Callable[[str], str] = redacted_message if own_words else redacted
        self._guard = (_only_moves if colours else visible) if stream.isatty() else _as_it_is
        if not colours:
            self.rich_proxied_file = Guarded(stream, own_words=own_words, colours=True)

    def write(self, text: str) -> int:
        """Writes the guarded text. Returns the length of the given text."""
        written = self._redacted(text)
        self._stream.write(self._guard(written))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Writes the guarded lines."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def guarded(*, debug: bool) -> Iterator[None]:
    """Guards standard output and error, and the error that ends a thread: it is printed as one line, with
    `debug` in full. Characters that the encoding lacks are printed as escapes.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # somebody has closed it, by `>&-`
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
    before = sys.stdout, sys.stderr, threading.excepthook
    for stream in before[:2]:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")

    def hook(failure: threading.ExceptHookArgs) -> None:
        if failure.exc_type is SystemExit:
            return
        if debug:
            import traceback

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
