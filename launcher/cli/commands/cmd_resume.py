"""`resume` continues a suspended run."""

from __future__ import annotations

from argparse import Namespace

from launcher.cli import arguments as shared
from launcher.cli import one_run
from launcher.object_names import PROGRAM

arguments = shared.run


def run(options: Namespace) -> int:
    """Undoes `suspend`."""
    from launcher.status import Phase

    backend, namespace = one_run.sought(options)
    running = backend.status(options.name, namespace).phase is Phase.RUNNING
    backend.resume(options.name, namespace)
    run_arguments = options.name + backend.options(namespace)
    message = "was not suspended" if running else "is resumed"
    print(f"run {options.name} {message}; watch it with: {PROGRAM} wait {run_arguments}")
    return 0
