"""`schema` prints a JSON Schema."""

from __future__ import annotations

from argparse import Namespace

from launcher.cli.strict_parser import StrictParser


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    parser.add_argument(
        "what",
        nargs="?",
        choices=("cluster", "status", "list"),
        default="cluster",
        help="of cluster.yaml, for an editor, or of what `status` or `list` print with -o json "
        "(default: %(default)s)",
    )


def run(options: Namespace) -> int:
    """Prints a JSON Schema."""
    import json

    from launcher.config import json_schema

    if options.what == "cluster":
        print(json_schema.as_json(), end="")
    else:
        from launcher.cli import run_document

        model = run_document.RunList if options.what == "list" else run_document.Run
        print(json.dumps(run_document.schema(model), indent=2))
    return 0
