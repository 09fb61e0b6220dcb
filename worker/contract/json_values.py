"""Checks of values that come from JSON. Each returns the value, or raises ValueError."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def checked(value: Any, is_right: bool) -> Any:
    """Returns the value where it is right. Raises ValueError where not."""
    if not is_right:
        raise ValueError("a field of a record has another type")
    return value


def text(value: Any) -> Any:
    """A string."""
    return checked(value, isinstance(value, str))


def flag(value: Any) -> Any:
    """True or False."""
    return checked(value, isinstance(value, bool))


def count(value: Any) -> Any:
    """A whole number from 0. The limit is needed because `int` has none, and neither has its printed
    text.
    """
    return checked(value, isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63)


def finite(value: Any) -> Any:
    """A number that is neither NaN nor infinite."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return checked(value, is_number and abs(value) < float("inf"))


def number(value: Any) -> Any:
    """A number; NaN and infinities are text, as JSON has no numbers for them."""
    if isinstance(value, float) or value in ("nan", "inf", "-inf"):
        return float(value)
    return finite(value)


def numbers(value: Any) -> Any:
    """Numbers by name."""
    return {name: number(each) for name, each in checked(value, isinstance(value, Mapping)).items()}


def each_of(value: Any) -> Any:
    """A list."""
    return checked(value, isinstance(value, (list, tuple)))


def texts(value: Any) -> Any:
    """A list of strings, as a tuple."""
    return tuple(map(text, each_of(value)))


def counts(value: Any) -> Any:
    """A list of whole numbers, as a tuple."""
    return tuple(map(count, each_of(value)))


def names(value: Any) -> Any:
    """Lists of strings by name."""
    return {reason: texts(each) for reason, each in checked(value, isinstance(value, Mapping)).items()}
