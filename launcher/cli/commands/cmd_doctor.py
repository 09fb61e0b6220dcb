"""`doctor` checks a cluster."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from launcher.cli import arguments as shared
from launcher.cli import from_file, one_run
from launcher.cli.strict_parser import StrictParser
from launcher.cli.usage import wrong_usage
from launcher.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Mapping


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    shared.file(parser, "the cluster.yaml whose runs are meant (default: any run)")
    shared.namespace(parser, "where (default: the context's own)")
    shared.context(parser)
    parser.add_argument(
        "--role",
        action="store_true",
        help="only print the least Role that is enough, for `kubectl apply -f -`",
    )
    parser.add_argument(
        "--controller",
        action="store_true",
        help="check whether the controller of TFJobs works, see docs/controller.md",
    )


def run(options: Namespace) -> int:
    """Checks a cluster; the exit code is BackendError's when a run cannot be submitted there."""
    from launcher import sentences
    from launcher.backends import backend_choice
    from launcher.backends.checked_names import check_names
    from launcher.backends.kubernetes.preflight import needed_rights, requirements
    from launcher.plan import serialization

    check_names(options.namespace)
    has_file = options.file is not None or options.filename is not None
    if options.overrides and not has_file:
        raise wrong_usage("--set", "overrides a field of a file: name the file too")
    if options.controller:
        if has_file or options.role:
            raise wrong_usage("--controller", "goes neither with a file nor with --role")
        return _controller(options)
    objects = _objects(options) if has_file else None
    extensions = (
        tuple(needed_rights.EXTENSION_RULES) if objects is None else requirements.extra_rights(objects)
    )
    if options.role:
        namespace = options.namespace or backend_choice.own_namespace("kubernetes", options.context)
        print(serialization.as_yaml([needed_rights.role(namespace, extensions)]), end="")
        return 0
    backend = backend_choice.named("kubernetes", options.context, one_run.patience(options))
    namespace = options.namespace or backend.namespace
    findings = backend.examine(namespace, objects)
    for line in sentences.findings(findings):
        print(line)
    unmet = [finding.subject for finding in findings if finding.verdict == "missing"]
    if any(subject.startswith("right to ") for subject in unmet):
        print(
            "\nThe least Role that is enough, for whoever may grant it (`doctor --role` prints it alone):\n"
        )
        print(serialization.as_yaml([needed_rights.role(namespace, extensions)]), end="")
    return BackendError.exit_code if unmet else 0


def _controller(options: Namespace) -> int:
    """Checks the controller; the exit code is BackendError's when it does not work."""
    from launcher import sentences
    from launcher.backends.kubernetes.api_server.client import Client
    from launcher.backends.kubernetes.api_server.connection import connect
    from launcher.controller import doctor

    connection = connect(None, options.context)
    findings = doctor.examine(
        Client(connection, one_run.patience(options)), options.namespace or connection.namespace
    )
    for line in sentences.findings(findings, "the controller works", "the controller does not work"):
        print(line)
    return BackendError.exit_code if any(each.verdict == "missing" for each in findings) else 0


def _objects(options: Namespace) -> list[Mapping[str, Any]]:
    """Returns the objects of all runs in the file."""
    from launcher import plan_of_file

    placed = [plan_of_file.placed(loaded, options.namespace, "default") for loaded in from_file.load(options)]
    return [item for loaded in placed for item in plan_of_file.plan(loaded).objects]
