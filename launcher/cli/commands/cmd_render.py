"""`render` prints the Kubernetes objects."""

from __future__ import annotations

import sys
from argparse import Namespace

from launcher.cli import arguments as shared
from launcher.cli import from_file
from launcher.cli.strict_parser import StrictParser


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    shared.file(parser)
    parser.add_argument(
        "--as",
        choices=("jobs", "jobset"),
        default="jobs",
        dest="form",
        help="one Job a role, or one JobSet with the roles as its replicatedJobs (default: %(default)s)",
    )
    shared.namespace(parser, "where they are to live, if the file does not say (default: kubectl's)")
    parser.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="(default: yaml)")


def run(options: Namespace) -> int:
    """Prints the Kubernetes objects."""
    from launcher import plan_of_file
    from launcher.plan import object_size, serialization

    objects = [
        item
        for loaded in from_file.load(options)
        for item in plan_of_file.rendered(loaded, options.namespace, options.form)
    ]
    print(
        serialization.as_json(objects) if options.output == "json" else serialization.as_yaml(objects), end=""
    )
    for item in objects:
        if object_size.too_large_for_apply(item):
            message = "is too large for the annotation of a plain `kubectl apply`: add --server-side"
            print(f"note: {item['kind']} {item['metadata']['name']} {message}", file=sys.stderr)
    return 0
