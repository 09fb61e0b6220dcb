"""Label selectors have the meaning that they have in kubectl."""

from __future__ import annotations

import pytest

from launcher.backends import label_selector
from launcher.errors import SpecError

LABELS = {"team": "vision", "env": "dev", "example.com/empty": ""}


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("team=vision", True),
        ("team==vision", True),
        ("team = vision", True),
        ("team=speech", False),
        ("team!=speech", True),
        ("team!=vision", False),
        ("other!=vision", True),
        ("team", True),
        ("other", False),
        ("!other", True),
        ("!team", False),
        ("team in (vision, speech)", True),
        ("team in (speech)", False),
        ("team notin (speech)", True),
        ("other notin (speech)", True),
        ("team notin (vision)", False),
        ("team=vision,env=dev", True),
        ("team=vision, env=prod", False),
        ("team in (speech,vision),!other,env", True),
        ("example.com/empty=", True),
    ],
)
def test_what_is_selected(text: str, selected: bool) -> None:
    assert label_selector.parse(text)(LABELS) is selected


@pytest.mark.parametrize(
    "text", ["", ",", "team in", "team in vision", "a b", "=x", "team=vision,", "team>3", "té=a", "x" * 64]
)
def test_what_is_no_selector(text: str) -> None:
    with pytest.raises(SpecError, match="-l: expected labels"):
        label_selector.parse(text)


@pytest.mark.parametrize("text", ["," * 120_000, "a in (" + "," * 120_000, "(" * 120_000, " " * 120_000])
def test_a_selector_that_would_take_minutes(text: str) -> None:
    with pytest.raises(SpecError, match="-l: expected at most 10000 characters"):
        label_selector.parse(text)
