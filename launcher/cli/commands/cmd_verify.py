"""`verify` compares a few steps by the strategy with those of one process."""

from __future__ import annotations

import json
import signal
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from launcher.cli import arguments as shared
from launcher.cli import from_file, plain_table
from launcher.cli.strict_parser import StrictParser, count
from launcher.cli.usage import wrong_usage
from launcher.errors import DIFFERS

if TYPE_CHECKING:
    from launcher.verification import Verdict


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    shared.file(parser)
    parser.add_argument(
        "--steps", type=count, default=20, metavar="N", help="how many steps are trained (default: 20)"
    )
    parser.add_argument(
        "--workers",
        type=count,
        default=2,
        metavar="N",
        help="how many workers, or devices of one task, are tried at most (default: 2)",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=("random", "statistics"),
        help="compare without what differs by design: random layers (dropout, augmentation), or the "
        "statistics that batch normalization takes of each replica's own examples; may be repeated",
    )
    parser.add_argument(
        "--allow-network", action="store_true", help="the trainings have this machine's network"
    )
    parser.add_argument("-o", "--output", choices=("json",), help="print the verdicts as JSON")


def run(options: Namespace) -> int:
    """Verifies each run of the file. Returns DIFFERS where one does not train as one process."""
    for name in ("steps", "workers"):
        if getattr(options, name) < 1:
            raise wrong_usage(f"--{name}", "expected 1 or more")
    from launcher import verification

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt  # so that SIGTERM removes everything, too

    signal.signal(signal.SIGTERM, interrupt)
    options.backend = "local"  # of which the notices are
    verdicts = []
    for loaded in from_file.load(options):

        def tell(sentence: str, source: str = loaded.source) -> None:
            print(f"{source}: {sentence}", file=sys.stderr, flush=True)

        verdict = verification.verify(
            loaded,
            steps=options.steps,
            workers=options.workers,
            without=options.without,
            allow_network=options.allow_network,
            tell=tell,
        )
        verdicts.append(verdict)
        if options.output is None:
            _show(verdict, loaded.cluster.spec.strategy)
    if options.output is not None:
        print(json.dumps([each.to_dict() for each in verdicts], indent=2))
    return 0 if all(each.agrees for each in verdicts) else DIFFERS


def _show(verdict: Verdict, strategy: str) -> None:
    for where in dict.fromkeys(each.where for each in verdict.compared):
        rows = [(where, "one process", strategy, "difference", "")]
        for each in verdict.compared:
            if each.where == where:
                one, other = ("" if value is None else f"{value:.6g}" for value in (each.one, each.strategy))
                verdict_on = "" if each.same else "differs"
                rows.append((each.name, one, other, f"{each.difference:.2g}", verdict_on))
        for line in plain_table.lines(rows):
            print(line)
        print()
    for note in verdict.notes:
        print(f"note: {note}")
    for cause in verdict.causes:
        print(f"cause: {cause}")
    print(f"run {verdict.run}: {_SAID[verdict.agrees]}")


_SAID = {
    True: "agrees: the strategy trains as one process does",
    False: "differs: the strategy does not train as one process does",
}
