"""Writes lists, counts and suggestions in a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def listed(parts: Sequence[str], most: int | None = None, last: str = "and") -> str:
    """Returns `a`, `a and b`, `a, b and c`; of more than `most`, `a, b, c and 7 more`. "" for none."""
    if most is not None and len(parts) > most:
        parts = [*parts[: most - 1], f"{len(parts) - most + 1} more"]
    return f" {last} ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def counted(count: int, noun: str) -> str:
    """Returns `1 restart`, `2 restarts`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def counted_role(count: int, role: str) -> str:
    """Returns `1 worker`, `2 workers`, `2 ps`."""
    return f"{count:,} ps" if role == "ps" else counted(count, role)


def nearest(word: str, known: Iterable[str]) -> str:
    """Returns the known word that `word` may have been meant for; "" where there is none."""
    import difflib  # few commands are misspelt

    return next(iter(difflib.get_close_matches(word, list(known), 1)), "")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns `; did you mean worker?`, or ""."""
    near = nearest(word, known)
    return f"; did you mean {near}?" if near else ""
