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

    wanted = one_run.run(options)
    message = "was suspended already" if wanted.status().phase is Phase.SUSPENDED else "is suspended"
    wanted.suspend()
    print(f"run {wanted.name} {message}; resume it with: {PROGRAM} resume {wanted.arguments}")
    return 0
