"""`logs` prints what tasks have printed."""

from __future__ import annotations

import sys
from argparse import Namespace

from launcher.cli import arguments as shared
from launcher.cli import one_run
from launcher.cli.strict_parser import StrictParser, count, duration, listed
from launcher.cli.usage import wrong_usage
from launcher.object_names import PROGRAM, ROLES


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    shared.run(parser)
    shared.tasks(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="continue until the run ends")
    parser.add_argument(
        "--role",
        action="extend",
        type=listed(str, ROLES),
        default=[],
        metavar="ROLE",
        help=f"this role only, or several: {', '.join(ROLES)}",
    )
    parser.add_argument(
        "--index",
        action="extend",
        type=listed(count),
        default=[],
        metavar="N",
        help="this task of each role only, or several: 0,2",
    )
    parser.add_argument("--since", type=duration, metavar="TIME", help="the last 30s, 10m or 2h only")
    parser.add_argument("--tail", type=count, metavar="N", help="of each task the last N lines only")
    parser.add_argument(
        "--timestamps",
        action="store_true",
        help="when each line was printed (on this machine within a second)",
    )
    parser.add_argument(
        "--previous",
        action="store_true",
        help="of the pods and processes that a task had before its latest one only",
    )
    parser.add_argument(
        "--raw",
        action="store_true",
        help="all lines as the tasks print them, without prefixes, what TensorFlow prints at its start too",
    )


def run(options: Namespace) -> int:
    """Prints the logs of the tasks."""
    from launcher import sentences
    from launcher.backends.base import Selection
    from launcher.cli import console

    if options.previous and options.follow:
        raise wrong_usage("--previous", "shows what has ended, so there is nothing to follow: leave out -f")
    selection = Selection(
        roles=options.role,
        indexes=options.index,
        since=options.since,
        previous=options.previous,
        names=options.tasks,
        tail=options.tail,
    )
    backend, namespace = one_run.sought(options)
    lines = backend.logs(options.name, namespace, selection, follow=options.follow)
    some, left_out = console.show_logs(lines, raw=options.raw, timestamps=options.timestamps)
    if not some and options.tail != 0:
        print(f"note: run {options.name}: {_nothing_printed(options)}", file=sys.stderr)
    if left_out:
        print(f"note: {sentences.left_out(left_out)}", file=sys.stderr)
    return 0


def _nothing_printed(options: Namespace) -> str:
    if options.previous:
        return "no task that is meant had a pod or a process before its latest one"
    when = " in that time" if options.since is not None else " yet"
    return f"what is meant has printed nothing{when}; `{PROGRAM} status {options.name}` says how it is"
