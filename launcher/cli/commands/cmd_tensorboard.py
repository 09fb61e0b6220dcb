"""`tensorboard` serves TensorBoard on a local port."""

from __future__ import annotations

import sys
from argparse import Namespace

from launcher.cli import arguments as shared
from launcher.cli import one_run
from launcher.cli.strict_parser import StrictParser


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    shared.run(parser)
    shared.port(parser)


def run(options: Namespace) -> int:
    """Serves TensorBoard on a local port, until Ctrl-C."""
    import signal

    wanted = one_run.run(options)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        with wanted.tensorboard(options.port) as board:
            print(f"TensorBoard of run {options.name}: {board.url}", flush=True)
            print("Ctrl-C ends it; the run is left alone", file=sys.stderr)
            board.wait()
    except KeyboardInterrupt:
        pass
    return 0
