"""`status` shows a run."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from launcher.cli import arguments as shared
from launcher.cli import one_run
from launcher.cli.strict_parser import StrictParser

if TYPE_CHECKING:
    from launcher.backends.base import Backend


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    shared.run(parser)
    shared.output(parser, "its tasks too, with their nodes and pods")
    parser.add_argument("-w", "--watch", action="store_true", help="again with each change, until it ends")


def run(options: Namespace) -> int:
    """Shows a run as it is now, or until it ends."""
    backend, namespace = one_run.sought(options)
    if options.output in ("json", "yaml", "name"):
        _print_status(options, backend, namespace)
        return 0
    from launcher.cli import console, run_table

    wide = options.output == "wide"
    if options.watch:
        status = run_table.watch_run(backend.follow(options.name, namespace), backend.place, wide=wide)
        if status is None or not sys.stdout.isatty():
            return 0
    else:
        status = backend.status(options.name, namespace)
    console.show_status(backend, status)
    if wide:
        run_table.show_tasks(status)
    return 0


def _print_status(options: Namespace, backend: Backend, namespace: str) -> None:
    """Prints the status as a document for programs; with --watch one document for each change, each JSON
    document on one line.
    """
    import time

    from launcher.cli import run_document, run_table

    followed = run_table.changes(backend.follow(options.name, namespace)) if options.watch else None
    for status in followed or [backend.status(options.name, namespace)]:
        if options.output == "name":
            print(status.run, flush=True)
            continue
        model = backend.places(status.run, status.namespace).get("model directory")
        document = run_document.of_run(status, backend.place, time.time(), model)
        run_document.print_document(document, options.output, in_a_line=options.watch)
