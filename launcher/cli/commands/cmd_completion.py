"""`completion` prints the script of a shell."""

from __future__ import annotations

import argparse
from argparse import Namespace

from launcher.cli import completion
from launcher.cli.strict_parser import StrictParser


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    shells = "|".join(completion.SHELLS)
    parser.add_argument("shell", metavar=shells, choices=completion.SHELLS, help="the shell that reads it")
    parser.epilog = completion.INSTALL
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def run(options: Namespace) -> int:
    """Prints the script that completes commands and names of runs in a shell."""
    print(completion.script(options.shell), end="")
    return 0
