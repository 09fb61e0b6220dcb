"""`profile` has TensorFlow's profiler run in all tasks for some steps."""

from __future__ import annotations

import sys
from argparse import Namespace

from launcher.cli import arguments as shared
from launcher.cli import one_run
from launcher.cli.strict_parser import StrictParser, count, duration
from launcher.cli.usage import wrong_usage
from launcher.object_names import PROGRAM
from worker.contract.orders import MOST_STEPS


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    shared.run(parser)
    parser.add_argument(
        "--steps",
        type=count,
        default=20,
        metavar="N",
        help=f"at least so many steps, and at most {MOST_STEPS:,} (default: 20)",
    )
    parser.add_argument(
        "--timeout",
        type=duration,
        default=300.0,
        metavar="TIME",
        help="how long the steps may take, from now on (default: 5m)",
    )


def run(options: Namespace) -> int:
    """Profiles the next steps of a run."""
    if not 1 <= options.steps <= MOST_STEPS:
        raise wrong_usage("--steps", f"expected a number from 1 to {MOST_STEPS:,}")
    wanted = one_run.run(options)
    print(f"waiting for {options.steps} steps of run {options.name}", file=sys.stderr, flush=True)
    profile = wanted.profile(options.steps, timeout=options.timeout)
    last = profile.first + profile.steps - 1
    print(f"steps {profile.first} to {last} of {', '.join(profile.tasks)}: {profile.path}")
    for name, why in profile.problems.items():
        print(f"note: {name} is not in it: {why}", file=sys.stderr)
    space = wanted.arguments.removeprefix(wanted.name)
    print(
        f"TensorBoard shows it, where its plugin xprof is installed: {PROGRAM} tensorboard "
        f"{wanted.arguments}, or a copy: {PROGRAM} cp {wanted.name}:logs ./logs{space}",
        file=sys.stderr,
    )
    return 0
