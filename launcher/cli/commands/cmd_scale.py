"""`scale` changes the number of workers."""

from __future__ import annotations

from argparse import Namespace

from launcher.cli import arguments as shared
from launcher.cli import one_run
from launcher.cli.strict_parser import StrictParser, count
from launcher.object_names import PROGRAM

_DATA_WORKER = "data-worker"


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    shared.run(parser)
    parser.add_argument(
        "--role",
        choices=("worker", _DATA_WORKER),
        default="worker",
        metavar="ROLE",
        help=f"worker (the default), or {_DATA_WORKER}, of spec.dataService",
    )
    parser.add_argument(
        "--workers",
        type=count,
        required=True,
        metavar="N",
        help="from minReplicas to maxReplicas; of data workers up to four times those of its file, or 16",
    )


def run(options: Namespace) -> int:
    """Changes the number of workers, or of data workers."""
    from launcher.backends.scalable_roles import counted_tasks

    wanted = one_run.run(options)
    before = wanted.scale(options.workers, options.role)
    if before == options.workers:
        print(
            f"run {wanted.name} is to have {counted_tasks(before, options.role)} already; "
            f"see: {PROGRAM} status {wanted.arguments}"
        )
    else:
        print(
            f"run {wanted.name} is to have {counted_tasks(options.workers, options.role)}, "
            f"{before} before; watch them come or go with: {PROGRAM} status {wanted.arguments} -w"
        )
    return 0
