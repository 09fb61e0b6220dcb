"""`convert` prints TFJobs as cluster.yaml files."""

from __future__ import annotations

from argparse import Namespace

from launcher.cli import arguments as shared
from launcher.cli import from_file

arguments = shared.file


def run(options: Namespace) -> int:
    """Prints TFJobs as cluster.yaml files."""
    from launcher import api

    for loaded in from_file.load(options):
        print(api.converted(loaded), end="")
    return 0
