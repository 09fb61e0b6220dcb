"""`init` writes the starter files."""

from __future__ import annotations

from argparse import Namespace

from launcher.cli.strict_parser import StrictParser
from launcher.object_names import PROGRAM


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    parser.add_argument("directory", metavar="FOLDER", nargs="?", default=".", help="where (default: here)")


def run(options: Namespace) -> int:
    """Writes the starter files."""
    from launcher import init_template

    written = init_template.write(options.directory)
    for path in written:
        print(f"wrote {path}")
    print(f"next: {PROGRAM} submit {written[0]} --backend local")
    return 0
