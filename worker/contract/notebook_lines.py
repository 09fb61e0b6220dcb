"""A script that was made of a notebook: which cell a line is of."""

from __future__ import annotations

import linecache
import re
from typing import Final

NOTEBOOK: Final = ".ipynb"
"""Of a notebook's name. That of its script is the same with `.py` behind it."""
HEADER: Final = "# The code cells of {}.\n"
_HEADING: Final = re.compile(r"# ---- cell (\d+)\n")


def heading(number: int) -> str:
    """Returns the line that stands before a code cell. The first cell's number is 1."""
    return f"# ---- cell {number}\n"


def located(path: str, line: int, shown: str) -> tuple[str, int]:
    """Returns `shown`, a name of the file `path`, and the line; for a notebook's script the name is such as
    `train.ipynb, cell 3`, and the line is that in the cell.
    """
    if path.endswith(f"{NOTEBOOK}.py"):
        for before, text in reversed(list(enumerate(linecache.getlines(path)[:line], 1))):
            if (match := _HEADING.fullmatch(text)) is not None:
                return f"{shown.removesuffix('.py')}, cell {match[1]}", line - before
    return shown, line
