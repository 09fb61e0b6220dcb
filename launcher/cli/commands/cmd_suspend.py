"""`suspend` stops a run's tasks for now."""

from __future__ import annotations

from argparse import Namespace

from launcher.cli import arguments as shared
from launcher.cli import one_run
from launcher.object_names import PROGRAM

arguments = shared.run


def run(options: Namespace) -> int:
    """Stops the tasks for now."""
    from launcher.status import Phase

    backend, namespace = one_run.sought(options)
    already = backend.status(options.name, namespace).phase is Phase.SUSPENDED
    backend.suspend(options.name, namespace)
    run_arguments = options.name + backend.options(namespace)
    message = "was suspended already" if already else "is suspended"
    print(f"run {options.name} {message}; resume it with: {PROGRAM} resume {run_arguments}")
    return 0
