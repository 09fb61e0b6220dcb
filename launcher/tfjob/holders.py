"""Finds a TFJob inside another object: a Katib Experiment, an Argo Workflow, a List."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from launcher.config.yaml_parser import FieldPath

_IN_TEXT: Final = re.compile(r"""^[ \t]*["']?kind["']?[ \t]*:[ \t]*["']?TFJob\b""", re.MULTILINE)
"""Matches a manifest inside a text, which its template's braces keep from being YAML."""


def held(value: Mapping[str, Any], expected: tuple[str, ...]) -> tuple[FieldPath, str] | None:
    """Returns the place of the TFJob in an object of another kind, and a message about it; None where there
    is none. `expected` are the kinds that the launcher reads.
    """
    kind = value.get("kind")
    if not isinstance(kind, str) or kind in expected:
        return None
    places = list(_places(value, ()))
    if not places:
        return None
    more = f", and {len(places) - 1} more" if len(places) > 1 else ""
    article = "an" if kind[:1].lower() in "aeiou" else "a"
    advice = f"here is a TFJob, in {article} {kind}{more}; only a TFJob itself is taken: write that to a file"
    if kind != "List" and not kind.endswith("JobList"):
        advice += f", with values for what the {kind} fills in"
    return places[0], advice


def _places(value: Any, here: FieldPath) -> Iterator[FieldPath]:
    if isinstance(value, Mapping):
        if value.get("kind") == "TFJob" and here:
            yield here
            return
        for name, inner in value.items():
            yield from _places(inner, (*here, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _places(inner, (*here, index))
    elif isinstance(value, str) and _IN_TEXT.search(value):
        yield here
