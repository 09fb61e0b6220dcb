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

    wanted = one_run.run(options)
    message = "was not suspended" if wanted.status().phase is Phase.RUNNING else "is resumed"
    note = wanted.resume()
    print(f"run {wanted.name} {message}; watch it with: {PROGRAM} wait {wanted.arguments}")
    if note:
        print(note)
    return 0
