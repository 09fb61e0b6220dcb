"""`help` shows the help of a command."""

from __future__ import annotations

from argparse import Namespace

from launcher.cli.strict_parser import StrictParser


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    parser.add_argument("topic", metavar="COMMAND", nargs="?", help="which one (default: all)")


def run(options: Namespace) -> int:
    """Prints the help of the command, or of all."""
    topic = options.top if options.topic is None else options.top.of_command(options.topic)
    topic.print_help()
    return 0
