"""Writes lists and counts in a sentence."""

from __future__ import annotations

from collections.abc import Sequence


def listed(parts: Sequence[str], most: int | None = None, last: str = "and") -> str:
    """Returns `a`, `a and b`, `a, b and c`; of more than `most`, `a, b, c and 7 more`. "" for none."""
    if most is not None and len(parts) > most:
        parts = [*parts[: most - 1], f"{len(parts) - most + 1} more"]
    return f" {last} ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def counted(count: int, noun: str) -> str:
    """Returns `1 restart`, `2 restarts`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
