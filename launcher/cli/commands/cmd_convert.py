"""`convert` prints TFJobs as cluster.yaml files."""

from __future__ import annotations

from argparse import Namespace

from launcher.cli import arguments as shared
from launcher.cli import from_file
from launcher.cli.strict_parser import StrictParser


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    shared.file(parser)


def run(options: Namespace) -> int:
    """Prints TFJobs as cluster.yaml files."""
    from launcher import api

    for loaded in from_file.load(options):
        print(api.converted(loaded), end="")
    return 0
