"""`events` shows the Kubernetes events of a run."""

from __future__ import annotations

from argparse import Namespace

from launcher.cli import arguments as shared
from launcher.cli import one_run
from launcher.cli.strict_parser import StrictParser


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    shared.run(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="continue until the run ends")


def run(options: Namespace) -> int:
    """Shows the Kubernetes events of a run."""
    from launcher import sentences

    for event in one_run.run(options).events(follow=options.follow):
        print(sentences.event(event), flush=options.follow)
    return 0
