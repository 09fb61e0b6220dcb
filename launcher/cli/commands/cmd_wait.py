"""`wait` waits for a run to end."""

from __future__ import annotations

from argparse import Namespace

from launcher.cli import arguments as shared
from launcher.cli import one_run
from launcher.cli.strict_parser import StrictParser, duration


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    shared.run(parser)
    parser.add_argument(
        "--for",
        choices=("running", "succeeded"),
        default="succeeded",
        dest="until",
        help="until every task runs, or to the end (default: %(default)s)",
    )
    parser.add_argument(
        "--timeout", type=duration, metavar="TIME", help="give up after 30s, 10m or 2h, with exit code 4"
    )


def run(options: Namespace) -> int:
    """Follows a run to its end, and returns its exit code."""
    from launcher.cli import live_view

    backend, namespace = one_run.sought(options)
    return live_view.watch(
        backend,
        options.name,
        namespace,
        stop_on_interrupt=False,
        until_running=options.until == "running",
        timeout=options.timeout,
    )
