"""`kill` ends a task as a crash would."""

from __future__ import annotations

from argparse import Namespace

from launcher.cli import arguments as shared
from launcher.cli import one_run
from launcher.cli.strict_parser import StrictParser
from launcher.object_names import PROGRAM


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    shared.run(parser)
    parser.add_argument("task", metavar="TASK", help="such as worker-1; a role alone is its first task")


def run(options: Namespace) -> int:
    """Ends a task as a crash would."""
    wanted = one_run.run(options)
    task = options.task if options.task.rpartition("-")[2].isdecimal() else f"{options.task}-0"
    wanted.kill(task)
    watch = f"{PROGRAM} wait {wanted.arguments}"
    print(f"{task} of run {wanted.name} is killed; watch what becomes of it: {watch}")
    return 0
