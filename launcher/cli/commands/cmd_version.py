"""`version` prints the version."""

from __future__ import annotations

from argparse import Namespace

from launcher.cli.commands import VERSION
from launcher.cli.strict_parser import StrictParser


def arguments(parser: StrictParser) -> None:
    """Nothing."""


def run(_: Namespace) -> int:
    """Prints the launcher's version."""
    print(VERSION)
    return 0
