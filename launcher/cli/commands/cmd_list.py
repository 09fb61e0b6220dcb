"""`list` shows all runs."""

from __future__ import annotations

import sys
from argparse import Namespace

from launcher.cli import arguments as shared
from launcher.cli import one_run
from launcher.cli.strict_parser import StrictParser
from launcher.errors import BackendError

_SECONDS = 10.0
"""Limit for a cluster that the user did not name."""


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    scope = parser.add_mutually_exclusive_group()
    shared.namespace(scope, "of this namespace only")
    scope.add_argument(
        "-A",
        "--all-namespaces",
        action="store_true",
        help="of all namespaces (the default where you may list them; else the context's own)",
    )
    parser.add_argument(
        "-l",
        "--selector",
        metavar="LABELS",
        help="with these labels (metadata.labels), as in team=vision or 'team in (vision, speech),!old'",
    )
    parser.add_argument(
        "--backend", choices=shared.BACKENDS, help="of one place only (default: this machine and the cluster)"
    )
    shared.context(parser)
    shared.output(parser, "the tasks, the context and the labels too")
    parser.add_argument("-w", "--watch", action="store_true", help="again with each change, until Ctrl-C")


def run(options: Namespace) -> int:
    """Shows all runs of this machine and of the cluster, one line each. Reports a cluster that does not
    answer, and returns the exit code of BackendError.
    """
    import time

    from launcher.backends import backend_choice, label_selector
    from launcher.backends.checked_names import check_names

    check_names(options.namespace)
    selected = label_selector.parse(options.selector) if options.selector is not None else None
    backends = backend_choice.all_or(options.backend, options.context, one_run.patience(options, _SECONDS))
    failed: set[str] = set()

    def report(error: BackendError) -> None:
        if error.message not in failed:
            failed.add(error.message)
            print(f"error: the cluster's runs are not shown: {error.message}", file=sys.stderr)

    def gather() -> list[run_table.Listed]:
        selected_runs = backend_choice.runs(
            backends, options.namespace, selected, progress=True, unreachable=report
        )
        return [run_table.Listed(status, backend.place) for backend, status in selected_runs]

    from launcher.cli import run_table

    places, wide = len(backends) > 1, options.output == "wide"
    if options.output in ("json", "yaml", "name"):
        for runs in run_table.repeated(gather) if options.watch else [gather()]:
            if options.output == "name":
                print("".join(f"{run.status.run}\n" for run in runs), end="", flush=True)
                continue
            from launcher.cli import run_document

            documents = [run_document.of_run(run.status, run.place, time.time()) for run in runs]
            run_document.print_document(
                run_document.of_runs(documents), options.output, in_a_line=options.watch
            )
    elif options.watch:
        run_table.watch_list(gather, wide=wide, places=places)
    else:
        run_table.show_list(gather(), wide=wide, places=places)
    return BackendError.exit_code if failed else 0
