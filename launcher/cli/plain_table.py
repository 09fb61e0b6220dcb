"""A table as lines of text, for programs and people alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def lines(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields each row as a line: the first column to the left, all others to the right."""
    first, *widths = (max(map(len, column)) for column in zip(*rows, strict=True))
    for name, *cells in rows:
        line = [name.ljust(first), *(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))]
        yield "   ".join(line).rstrip()
