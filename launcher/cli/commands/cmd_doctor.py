"""`doctor` checks a cluster."""

from __future__ import annotations

import signal
import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from launcher.cli import arguments as shared
from launcher.cli import from_file, one_run, plain_table
from launcher.cli.strict_parser import StrictParser, count
from launcher.cli.usage import wrong_usage
from launcher.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from launcher.validation.loader import Loaded


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
    parser.add_argument(
        "--nodes",
        type=count,
        nargs="?",
        const=0,
        metavar="N",
        help="measure the nodes, each by a pod like a worker of FILE, see docs/precheck.md; N: how many "
        "(default: all that pods may run on)",
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
    if options.nodes is not None and (not has_file or options.role or options.controller):
        raise wrong_usage("--nodes", "needs a file, and goes neither with --role nor with --controller")
    if options.overrides and not has_file:
        raise wrong_usage("--set", "overrides a field of a file: name the file too")
    if options.controller:
        if has_file or options.role:
            raise wrong_usage("--controller", "goes neither with a file nor with --role")
        return _controller(options)
    if options.nodes is not None:
        return _nodes(options)
    placed = _placed(options) if has_file else []
    objects = _objects(placed) if has_file else None
    extensions = (
        tuple(needed_rights.EXTENSION_RULES) if objects is None else requirements.extra_rights(objects)
    )
    namespace = placed[0].cluster.metadata.namespace if placed else options.namespace
    if options.role:
        namespace = namespace or backend_choice.own_namespace("kubernetes", options.context)
        print(serialization.as_yaml([needed_rights.role(namespace, extensions)]), end="")
        return 0
    backend = backend_choice.named("kubernetes", options.context, one_run.patience(options))
    namespace = namespace or backend.namespace
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


def _nodes(options: Namespace) -> int:
    """Measures the nodes for the first run of the file, and prints a table."""
    from launcher import node_measurement
    from launcher.backends.kubernetes.backend import KubernetesBackend

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt  # so that SIGTERM removes everything, too

    signal.signal(signal.SIGTERM, interrupt)
    loaded = from_file.load(options)[0]
    backend = KubernetesBackend(None, options.context, patience=one_run.patience(options))
    namespace = loaded.cluster.metadata.namespace
    if "namespace" not in loaded.cluster.metadata.model_fields_set:
        namespace = options.namespace or backend.namespace
    nodes = options.nodes or backend.count_nodes()
    measured = node_measurement.measure(
        backend, loaded, namespace, nodes, lambda sentence: print(sentence, file=sys.stderr, flush=True)
    )
    for line in plain_table.lines(node_measurement.rows(measured)):
        print(line)
    print()
    for each in measured:
        if each.content is None:
            print(f"{each.node or 'one node'} was not measured: {each.reason}")
    far_off = [each for each in measured if each.far_off]
    for each in far_off:
        print(f"{each.node} is far off: it {each.far_off}")
    if not far_off:
        print("no node is far off from the others")
    return 0


def _placed(options: Namespace) -> list[Loaded]:
    """Returns all runs of the file, in the namespaces where they would be."""
    from launcher import plan_of_file
    from launcher.backends import backend_choice

    default = options.namespace or backend_choice.own_namespace("kubernetes", options.context)
    return [plan_of_file.placed(loaded, options.namespace, default) for loaded in from_file.load(options)]


def _objects(placed: Sequence[Loaded]) -> list[Mapping[str, Any]]:
    """Returns the objects of all these runs."""
    from launcher import plan_of_file

    return [item for loaded in placed for item in plan_of_file.plan(loaded).objects]
