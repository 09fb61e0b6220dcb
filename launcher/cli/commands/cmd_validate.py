"""`validate` checks a file."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from launcher.cli import arguments as shared
from launcher.cli import from_file
from launcher.cli.strict_parser import StrictParser
from launcher.errors import SpecError

if TYPE_CHECKING:
    from launcher.backends.base import Plan
    from launcher.validation.loader import Loaded


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    shared.file(parser)
    parser.add_argument(
        "--import",
        action="store_true",
        dest="imports",
        help="also import the program and make a first step, in a process of its own, on this machine's CPU",
    )


def run(options: Namespace) -> int:
    """Checks a file without doing anything."""
    from launcher import plan_of_file
    from launcher.plan import topology

    for loaded in from_file.load(options):
        plan = plan_of_file.plan(loaded)
        planned = topology.build(loaded.cluster)
        counts = ", ".join(
            f"{role.replicas} {role.name}"
            + (f" ({role.min_replicas} to {role.max_replicas})" if role.elastic is not None else "")
            for role in planned.roles
        )
        if options.imports:
            _try_program(loaded, plan)
        print(f"{loaded.source}: {planned.run}: valid: {loaded.cluster.spec.strategy} with {counts}")
        if _has_program(loaded):
            tried = "was imported and has made a first step, with this machine's packages, on its CPU"
            outcome = tried if options.imports else "was not imported; `validate --import` tries it"
            print(f"{loaded.source}: {planned.run}: the program {outcome}")
        elif loaded.cluster.spec.trains_program:
            # To import a script is to run it.
            print(f"{loaded.source}: {planned.run}: the script was not run; `verify` trains some steps of it")
    return 0


def _has_program(loaded: Loaded) -> bool:
    program = loaded.cluster.spec.program
    return program is not None and program.entrypoint is not None


def _try_program(loaded: Loaded, plan: Plan) -> None:
    from launcher import program_check

    if _has_program(loaded):
        print(f"{loaded.source}: trying the program, which takes some seconds", file=sys.stderr, flush=True)
    problems, notices = program_check.problems(loaded, plan)
    for notice in notices:
        print(f"{loaded.source}: note: {notice}", file=sys.stderr)
    if problems:
        raise SpecError(problems)
