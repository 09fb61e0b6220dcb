"""The program that a run ships."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ProgramFiles:
    """The files of a program, by their path below the source directory (`/` between the parts)."""

    files: Mapping[str, bytes]
