"""`report` writes an HTML report."""

from __future__ import annotations

import sys
from argparse import Namespace

from launcher.cli import arguments as shared
from launcher.cli import one_run
from launcher.cli.strict_parser import StrictParser
from launcher.cli.usage import wrong_usage


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    shared.run(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where, replacing what is there; - is standard output (default: NAME.html)",
    )
    parser.add_argument(
        "--serve",
        action="store_true",
        help="write nothing: show it at an address of this machine, where it follows the run, until Ctrl-C",
    )
    shared.port(parser)


def run(options: Namespace) -> int:
    """Writes an HTML report of a run, or serves it."""
    if options.serve and options.output is not None:
        raise wrong_usage("--output", "--serve writes no file: leave out one of the two")
    if options.port and not options.serve:
        raise wrong_usage("--port", "a file has no port: add --serve")
    if options.serve:
        from launcher.cli.commands import cmd_ui

        backend, namespace = one_run.sought(options)
        backend.status(options.name, namespace)
        path = f"runs/{backend.place.backend}/{namespace}/{options.name}"
        cmd_ui.serve(options, f"run {options.name}", path)
        return 0
    text = one_run.run(options).report()
    target = options.output or f"{options.name}.html"
    if target == "-":
        # Bytes: the page says that it is UTF-8, whatever the terminal's encoding is.
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode())
    else:
        from launcher.report import page

        page.write(text, target)
        print(f"wrote {target}")
    return 0
