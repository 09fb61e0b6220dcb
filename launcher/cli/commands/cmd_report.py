"""`report` writes an HTML report."""

from __future__ import annotations

import sys
from argparse import Namespace

from launcher.cli import arguments as shared
from launcher.cli import one_run
from launcher.cli.strict_parser import StrictParser


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    shared.run(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where, replacing what is there; - is standard output (default: NAME.html)",
    )


def run(options: Namespace) -> int:
    """Writes an HTML report of a run."""
    from launcher.report import page

    backend, namespace = one_run.sought(options)
    text = page.page_of(backend.history(options.name, namespace))
    target = options.output or f"{options.name}.html"
    if target == "-":
        # Bytes: the page says that it is UTF-8, whatever the terminal's encoding is.
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode())
    else:
        page.write(text, target)
        print(f"wrote {target}")
    return 0
