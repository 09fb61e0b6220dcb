"""`ui` shows all runs in a browser."""

from __future__ import annotations

import sys
from argparse import Namespace

from launcher.cli import arguments as shared
from launcher.cli.strict_parser import StrictParser

_SECONDS = 10.0
"""Limit for a cluster's answers to one page. It is asked again; meanwhile the page shows what is known."""


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    shared.namespace(parser, "of this namespace only (default: all)")
    parser.add_argument(
        "--backend", choices=shared.BACKENDS, help="of one place only (default: this machine and the cluster)"
    )
    shared.context(parser)
    shared.port(parser)


def run(options: Namespace) -> int:
    """Shows all runs as pages of a browser, which follow them, until Ctrl-C."""
    from launcher.backends.checked_names import check_names

    check_names(options.namespace)
    serve(options, "the runs", "", options.namespace)
    return 0


def serve(options: Namespace, what: str, path: str, namespace: str | None = None) -> None:
    """Serves the pages, and prints the address of the one at this path, which shows `what`."""
    import signal

    from launcher.backends import backend_choice
    from launcher.backends.patience import Patience
    from launcher.ui.reads import Place
    from launcher.ui.server import Server
    from launcher.ui.site import Site

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    seconds = _SECONDS if options.request_timeout is None else options.request_timeout
    patience = Patience(seconds)
    chosen = options.backend or ("kubernetes" if options.context is not None else None)
    names = [chosen] if chosen is not None else ["local", "kubernetes"]
    backends = backend_choice.all_or(options.backend, options.context, patience)
    places = [Place(name, backend, patience) for name, backend in zip(names, backends, strict=False)]
    try:
        with Server(options.port) as server:
            server.site = Site(places, f"/{server.token}", namespace)
            print("Ctrl-C ends it; the runs are left alone", file=sys.stderr)
            print(f"{what}: {server.url}{path}", flush=True)
            server.serve_forever()
    except KeyboardInterrupt:
        pass
