"""Kubernetes' quantities as numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

_SUFFIXES: Final[Mapping[str, Fraction]] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{suffix: Fraction(1000 ** (power + 1)) for power, suffix in enumerate("kMGTPE")},
    **{f"{suffix}i": Fraction(1024 ** (power + 1)) for power, suffix in enumerate("KMGTPE")},
}
_QUANTITY: Final = re.compile(r"\+?(\d+\.?\d*|\.\d+)(?:([eE][+-]?\d+)|([numkKMGTPE]i?)?)")


def quantity(text: str) -> Fraction:
    """A quantity as a number: `500m` is 1/2. Raises ValueError when it is none."""
    match = _QUANTITY.fullmatch(text)
    if match is None or (match.group(3) or "") not in _SUFFIXES:
        raise ValueError(f"not a quantity: {text}")
    number, exponent, suffix = match.groups()
    return Fraction(number + (exponent or "")) * _SUFFIXES[suffix or ""]
