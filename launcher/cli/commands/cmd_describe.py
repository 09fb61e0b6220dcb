"""`describe` shows all that is known of a run."""

from __future__ import annotations

from argparse import Namespace

from launcher.cli import arguments as shared
from launcher.cli import one_run

arguments = shared.run


def run(options: Namespace) -> int:
    """Shows everything that is known of a run."""
    from launcher.cli import console, run_table

    backend, namespace = one_run.sought(options)
    status = backend.status(options.name, namespace)
    run_table.show_facts(status, backend.place)
    if not status.ended:
        print()
    console.show_status(backend, status)
    run_table.show_tasks(status)
    if backend.place.backend == "kubernetes":
        run_table.show_events(list(backend.events(options.name, namespace, follow=False)))
    return 0
