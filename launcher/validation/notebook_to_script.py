"""Turns a notebook into a script: its code cells in order, without what only Jupyter understands.

A cell keeps its number of lines, and stands below a comment with its number. So a line of the script says
the cell and the line in it, see `worker.contract.notebook_lines`.
"""

from __future__ import annotations

import ast
import io
import json
import re
import shlex
import tokenize
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from worker.contract.notebook_lines import HEADER, heading

_KEPT_CELLS: Final = ("time", "capture", "prun")
"""Cell magics around code that is to run."""
_KEPT_LINES: Final = re.compile(r"(\s*)%(?:time|prun)\s+(?=\S)")
_CELL: Final = re.compile(r"\s*%%(\w+)[ \t]*(.*)")
_LEFT_OUT: Final = re.compile(r"(\s*)(?:[%!?]|[A-Za-z_][\w.]*\?\??\s*$)")
_ASSIGNED: Final = re.compile(r"(\s*)[A-Za-z_][\w.,\s\[\]]*=\s*[!%](?!=)")
_INSTALL: Final = re.compile(
    r"\s*[!%]\s*(?:sudo\s+)?(?:python3?\s+-m\s+)?(?:pip3?|uv\s+pip|conda)\s+install\s+(.*)"
)
_FUTURE: Final = re.compile(r"^(from __future__ import [^(\n]*)$", re.MULTILINE)
"""It must be a script's first statement."""
_JUPYTERS: Final = "display, get_ipython = print, lambda: None  # what Jupyter defines\n"
"""IPython's own get_ipython() returns None outside of it, too."""
_OF_THE_IMAGE: Final = re.compile(r"(?:tensorflow|tf[-_]nightly|keras|pip)(?![\w-])")
_VARIABLE: Final = re.compile(r"\s*%(?:set_)?env\s+(\w+)[\s=]")


class NotebookError(ValueError):
    """It is no notebook of Python. The text says why, with cell and line."""


@dataclass
class Script:
    """A notebook as a script. `files` are those that its cells write by %%writefile; `notices` say what was
    left out.
    """

    text: str = ""
    files: dict[str, str] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)


def script(content: bytes, name: str) -> Script:
    """Returns the script of a notebook with this file name. Raises NotebookError."""
    made = Script()
    futures: list[str] = []
    lines: list[str] = []
    for number, source in enumerate(_cells(content), 1):
        text = _cell(source, number, made)
        _check(text, number)
        futures += _FUTURE.findall(text)
        text = _FUTURE.sub(r"pass  # \1", text)
        lines += [heading(number), text if text.endswith("\n") else f"{text}\n"]
    made.text = "".join([HEADER.format(name), *(f"{line}\n" for line in futures), _JUPYTERS, *lines])
    return made


def _cells(content: bytes) -> Sequence[str]:
    """Returns the code cells."""
    try:
        book = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise NotebookError(f"not a notebook: {error}") from None
    if not isinstance(book, dict) or not isinstance(book.get("cells"), list):
        raise NotebookError(
            "not a notebook of format 4: `jupyter nbconvert --to notebook` converts older ones"
        )
    language = _at(book, "metadata", "kernelspec", "language") or _at(
        book, "metadata", "language_info", "name"
    )
    if language not in (None, "python"):
        raise NotebookError(f"a notebook of {language}, and a script is Python")
    cells = [cell for cell in book["cells"] if isinstance(cell, dict) and cell.get("cell_type") == "code"]
    sources = [cell.get("source", "") for cell in cells]
    return ["".join(map(str, each)) if isinstance(each, list) else str(each) for each in sources]


def _at(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _cell(source: str, number: int, made: Script) -> str:
    """Returns the cell as Python, with the same number of lines."""
    # A form feed or another of Unicode's separators ends no line of Python.
    lines = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    first = next((at for at, line in enumerate(lines) if line.strip()), None)
    if first is None:
        return source
    # As Jupyter does: the first line's indentation is no one's.
    indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
    lines = [line.removeprefix(indent) for line in lines]
    if (cell := _CELL.match(lines[first])) is not None:
        lines[first] = f"# {lines[first].strip()}"
        if cell[1] not in _KEPT_CELLS:
            return _whole_cell(cell[1], cell[2], lines, first, number, made)
    pending, goes_on = "", False
    for at, line in enumerate(lines):
        if goes_on:  # of a command that is left out
            lines[at] = f"# {line.strip()}"
            goes_on = line.rstrip().endswith("\\")
            continue
        if pending or not (magic := _LEFT_OUT.match(line) or _ASSIGNED.match(line)):
            pending = _unfinished(pending, line)
            continue
        if (kept := _KEPT_LINES.match(line)) is not None:
            lines[at] = kept[1] + line[kept.end() :]
            pending = _unfinished("", lines[at])
            continue
        # Where it stands alone in a block, something must.
        lines[at] = f"{magic[1]}pass  # {line.strip().rstrip(chr(92))}"
        made.notices.append(f"cell {number}, line {at + 1}: {_left_out(line)}")
        goes_on = line.rstrip().endswith("\\")
    return "\n".join(lines)


def _whole_cell(
    magic: str, argument: str, lines: Sequence[str], first: int, number: int, made: Script
) -> str:
    body = "\n".join(lines[first + 1 :]).rstrip("\n")
    if magic in ("writefile", "file"):
        words = [word for word in argument.split() if word not in ("-a", "--append")]
        path = words[-1].strip("'\"").removeprefix("./") if words else ""
        before = made.files.get(path, "") if len(words) < len(argument.split()) else ""
        if not path or path.startswith(("/", "~", "$")) or ".." in path.split("/"):
            left = f"%%{magic} {argument}".rstrip()
            made.notices.append(f"cell {number}: {left} is left out: only a file beside it travels")
        else:
            made.files[path] = f"{before}{body}\n"
    else:
        made.notices.append(f"cell {number}: %%{magic} is left out, with its cell")
    return "\n".join(line if line.startswith("#") else f"# {line}" for line in lines)


def _left_out(line: str) -> str:
    message = f"{line.strip()} is left out"
    if (install := _INSTALL.match(line)) is not None:
        try:
            words = shlex.split(install[1], comments=True)
        except ValueError:
            words = install[1].split()
        wanted = [word for word in words if not word.startswith("-") and not _OF_THE_IMAGE.match(word)]
        packages = [f"NAME @ {word}" if "://" in word else word for word in wanted]
        if packages:
            return f"{message}: program.packages: [{', '.join(packages)}] installs it in each task"
    if (variable := _VARIABLE.match(line)) is not None:
        return f"{message}: template.env sets {variable[1]} in each task"
    return message


def _unfinished(before: str, line: str) -> str:
    """Returns the statement that the line leaves open, as it is so far; "" where it ends with the line."""
    text = f"{before}{line}\n"
    if line.rstrip().endswith("\\"):
        return text
    try:
        for _ in tokenize.generate_tokens(io.StringIO(text.lstrip() if not before else text).readline):
            pass
    except tokenize.TokenError:
        return text
    except (SyntaxError, ValueError):
        return ""  # told where the cell is checked
    return ""


def _check(text: str, number: int) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (RecursionError, MemoryError):
        raise NotebookError(f"cell {number}: not valid Python: nested too deeply") from None
    except SyntaxError as error:
        raise NotebookError(f"cell {number}, line {error.lineno}: not valid Python: {error.msg}") from None
    except ValueError as error:
        raise NotebookError(f"cell {number}: not valid Python: {error}") from None
