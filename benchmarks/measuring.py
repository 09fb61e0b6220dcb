"""Times of commands, taken in turns so that a busy machine slows all alike, and the table of their ratios."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent

# An installed program has its bytecode cached; so has this one, whatever the shell says.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

LIBRARIES = """
import gc, os
os.environ["PYDANTIC_DISABLE_PLUGINS"] = "true"
gc.set_threshold(200_000)
import jinja2, pydantic, yaml
class Model(pydantic.BaseModel): ...
gc.freeze()
"""
"""What `render` cannot do without, as the launcher uses it."""


def milliseconds(command: Sequence[str], *, quiet: bool = False) -> float:
    """Wall time of one run, from the directory of the repository. Raises CalledProcessError.

    `quiet` leaves out what it prints on standard error too.
    """
    begin = time.perf_counter()
    errors = subprocess.DEVNULL if quiet else None
    subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=errors, check=True)
    return (time.perf_counter() - begin) * 1000


def interleaved(commands: Mapping[str, Sequence[str]], rounds: int) -> dict[str, float]:
    """The median time of each command in milliseconds. One round before the first is not counted."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for round_ in range(rounds + 1):
        for name, command in commands.items():
            taken = milliseconds(command)
            if round_:
                times[name].append(taken)
    return {name: statistics.median(values) for name, values in times.items()}


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, its columns aligned: the first to the left, the others to the right."""
    widths = [max(len(cells[column]) for cells in (heads, *rows)) for column in range(len(heads))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = [("-" * width) if not column else "-" * (width - 1) + ":" for column, width in enumerate(widths)]
    return "\n".join([line(heads), line(rule), *(line(row) for row in rows)])
