"""What is to be shown -> HTML. The template prints; whatever text is in the report, it stays text."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup

from launcher.backends.base import History
from launcher.errors import Problem, SpecError
from launcher.plan.template_cache import TemplateCache
from launcher.report.model import Report, report

_LONGEST: Final = 4_000
"""Characters of one text: a message may have any length."""

_FORBIDDEN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""What HTML does not have, and what would not survive UTF-8."""


def page(shown: Report) -> str:
    """The page as one document, which loads nothing."""
    return _environment().get_template("report.html.j2").render(report=shown)


def page_of(history: History) -> str:
    """The page of a run, its times of day this machine's."""
    return page(report(history))


def write(text: str, path: str) -> None:
    """Replaces the file as a whole: a browser that loads it meanwhile sees a whole page. Raises SpecError."""
    target = Path(path)
    try:
        target = target.resolve()  # where a link leads
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")  # a pipe or a device has nothing to be replaced
            return
        new = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            new.write_text(text, encoding="utf-8")
            new.replace(target)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise SpecError(
            [Problem("--output", 0, 0, "", f"{path} cannot be written: {error.strerror or error}")]
        ) from None


def _printable(value: Any) -> Any:
    if isinstance(value, Markup) or not isinstance(value, str):  # a macro's output was made by us
        return value
    text = value if len(value) <= _LONGEST else f"{value[: _LONGEST - 1]}…"
    return _FORBIDDEN.sub("\ufffd", text)


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("launcher", "templates"),
        autoescape=True,
        finalize=_printable,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        bytecode_cache=TemplateCache(),
    )
