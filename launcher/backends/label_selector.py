"""Kubernetes' label selectors: `team=vision,env in (dev, test),!old`.

Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from launcher.errors import Problem, SpecError
from launcher.object_names import is_label_key, is_label_value

Matches = Callable[[Mapping[str, str]], bool]

_BETWEEN: Final = re.compile(r",(?![^()]*\))")
"""Commas, but for those in brackets."""
_LONGEST: Final = 10_000
"""Characters. The time to find the commas grows with their square."""
_EQUALITY: Final = re.compile(r"([^\s=!]+)\s*(==|=|!=)\s*([^\s=!]*)")
_SET: Final = re.compile(r"(\S+)\s+(in|notin)\s*\(([^()]*)\)")


def parse(text: str, source: str = "-l") -> Matches:
    """Tells whether labels are selected. Raises SpecError."""
    if len(text) > _LONGEST:
        raise SpecError([Problem(source, 0, 0, "", f"expected at most {_LONGEST} characters")])
    parts = [_requirement(part.strip(), source) for part in _BETWEEN.split(text)]
    return lambda labels: all(part(labels) for part in parts)


def _requirement(text: str, source: str) -> Matches:
    values: tuple[str, ...] = ()
    if match := _EQUALITY.fullmatch(text):
        key, operator, value = match.groups()
        values = (value,)
    elif match := _SET.fullmatch(text):
        key, operator, listed = match.groups()
        values = tuple(value.strip() for value in listed.split(","))
    else:
        key, operator = text.removeprefix("!").strip(), "!" if text.startswith("!") else "exists"
    if not is_label_key(key) or not all(map(is_label_value, values)):
        expected = "labels, as in team=vision, team!=speech, 'team in (vision, speech)', team or '!team'"
        raise SpecError([Problem(source, 0, 0, "", f"expected {expected}; not {text[:80]!a}")])
    if operator in ("exists", "!"):
        return lambda labels: (key in labels) is (operator == "exists")
    # As in Kubernetes, what lacks the label does not have that value.
    return lambda labels: (labels.get(key) in values) is (operator not in ("!=", "notin"))
