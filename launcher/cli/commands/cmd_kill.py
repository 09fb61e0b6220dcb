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
    backend, namespace = one_run.sought(options)
    task = options.task if options.task.rpartition("-")[2].isdecimal() else f"{options.task}-0"
    backend.kill(options.name, namespace, task)
    run_arguments = options.name + backend.options(namespace)
    print(f"{task} of run {options.name} is killed; watch what becomes of it: {PROGRAM} wait {run_arguments}")
    return 0
