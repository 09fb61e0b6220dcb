"""Report -> HTML. The template escapes all text."""

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
from launcher.redaction import redacted
from launcher.report.page_content import Report, report

_LONGEST: Final = 4_000
"""Characters of one text; the rest is cut off."""

_FORBIDDEN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Characters that HTML does not allow or UTF-8 cannot encode."""


def page(shown: Report) -> str:
    """The page as one document, which loads nothing from elsewhere."""
    return rendered("report.html.j2", report=shown)


def rendered(template: str, **values: Any) -> str:
    """What one of the templates makes of the values."""
    return _environment().get_template(template).render(values)


def page_of(history: History) -> str:
    """The page of a run, with times of day of this machine."""
    return page(report(history))


def write(text: str, path: str) -> None:
    """Replaces the file at once, so that a browser never loads half a page. Raises SpecError."""
    target = Path(path)
    try:
        target = target.resolve()  # the link's target is replaced, and not the link
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")  # a pipe or a device cannot be replaced
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
    if isinstance(value, Markup) or not isinstance(value, str):  # a macro of the template, escaped already
        return value
    text = redacted(value)
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
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
