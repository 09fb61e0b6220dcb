"""`cp` copies a run's files."""

from __future__ import annotations

from argparse import Namespace

from launcher.cli import arguments as shared
from launcher.cli import one_run
from launcher.cli.strict_parser import StrictParser, duration
from launcher.cli.usage import wrong_usage


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    parser.add_argument(
        "source",
        metavar="NAME:PATH",
        help="the run, and a path below its modelDir, as in mnist:export; NAME: is all of it",
    )
    parser.add_argument(
        "target",
        metavar="TARGET",
        nargs="?",
        default=".",
        help="the file or folder to write; in a folder that is there, under its own name (default: here)",
    )
    parser.add_argument(
        "--timeout",
        type=duration,
        default=300.0,
        metavar="TIME",
        help="how long the pod that copies may take to come up (Kubernetes; default: 5m)",
    )
    shared.place(parser)


def run(options: Namespace) -> int:
    """Copies files of a run."""
    import signal

    name, colon, path = options.source.partition(":")
    if not colon:
        if ":" in options.target:
            message = f"cp copies from a run, not to one: expected NAME:PATH first, not {name}"
            raise wrong_usage("NAME:PATH", message)
        run, _, below = name.partition("/")
        example = f"{run or 'mnist'}:{below or 'export'}"
        raise wrong_usage("NAME:PATH", f"expected a run and a path below its modelDir, as in {example}")
    wanted = one_run.run(options, name)
    # The pod that was made for the copy must be removed on SIGTERM too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    written = wanted.copy(path, options.target, timeout=options.timeout)
    print(f"copied to {written}")
    return 0
