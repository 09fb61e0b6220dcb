"""Prints the entries of a lock that the named packages need, themselves included: an image installs no more.

    python3 select.py LOCK PACKAGE... [-PACKAGE...]

A package with a dash before it is left out, and with it what only that one needs. Made for locks by uv, which
writes under each entry who requires it (`# via`). Standard library only.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*(?===)")
_REQUIRED_BY = re.compile(r"^    # (?:via|  )\s*([a-z0-9-]+)$", re.MULTILINE)


def select(lock: str, wanted: list[str]) -> str:
    """The lock's entries for `wanted` (normalised names) and all that these require, in the lock's order.

    Raises ValueError for a package that the lock does not have.
    """
    entries = list(_entries(lock))
    if missing := {name.removeprefix("-") for name in wanted} - {name for name, _ in entries}:
        raise ValueError(f"not in the lock: {', '.join(sorted(missing))}")
    entries = [(name, text) for name, text in entries if f"-{name}" not in wanted]
    chosen = {name for name in wanted if not name.startswith("-")}
    before = 0
    while len(chosen) > before:
        before = len(chosen)
        chosen |= {name for name, text in entries if chosen & set(_REQUIRED_BY.findall(text))}
    return "".join(text for name, text in entries if name in chosen)


def _entries(lock: str) -> Iterator[tuple[str, str]]:
    """Name and text of each; a package may have several, for different platforms."""
    for text in re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE):
        if name := _NAME.match(text):
            yield name[0], text


if __name__ == "__main__":
    try:
        print(select(Path(sys.argv[1]).read_text(encoding="utf-8"), sys.argv[2:]), end="")
    except ValueError as error:
        sys.exit(f"select.py: {error}")
