"""Durations, counts and numbers as text."""

from __future__ import annotations

from typing import Final

MOST_NAMES: Final = 4
"""Names in a list. Of a longer one, the last entry says how many more there are."""


def duration(seconds: float) -> str:
    """`0.4 s`, `8.3 s`, `31 s`, `4 min 12 s`, `2 h 05 min`, `3 d 4 h`."""
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    if whole < 48 * 3600:
        hours, minutes = divmod(round(seconds / 60), 60)
        return f"{hours} h {minutes:02d} min"
    days, hours = divmod(round(seconds / 3600), 24)
    return f"{days} d {hours} h"


def number(value: float) -> str:
    """A loss or a metric: `0.4312`, `27.4`, `1.2e-05`."""
    if value == 0:
        return "0"
    size = abs(value)
    if size < 1e-3 or size >= 1e6:
        return f"{value:.2e}"
    digits = 4 if size < 10 else 2 if size < 100 else 1 if size < 1000 else 0
    return f"{value:,.{digits}f}"


def rate(value: float) -> str:
    """Steps per second: `0.14`, `9.16`, `144`."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
