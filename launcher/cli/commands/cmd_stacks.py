"""`stacks` shows what tasks are doing, line by line."""

from __future__ import annotations

import sys
from argparse import Namespace

from launcher.cli import arguments as shared
from launcher.cli import one_run
from launcher.cli.strict_parser import StrictParser


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    shared.run(parser)
    shared.tasks(parser)


def run(options: Namespace) -> int:
    """Prints the stacks of the tasks that run."""
    from launcher.errors import ConflictError

    stacks = one_run.run(options).stacks(*options.tasks)
    for each in stacks:
        if each.text:
            print(f"==> {each.task}{f' ({each.node})' if each.node else ''} <==\n{each.text}")
    sys.stdout.flush()
    for each in stacks:
        if each.problem:
            print(f"note: {each.task}: {each.problem}", file=sys.stderr)
    return 0 if any(each.text for each in stacks) else ConflictError.exit_code
