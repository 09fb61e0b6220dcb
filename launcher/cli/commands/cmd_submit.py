"""`submit` starts a file's runs."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from launcher.cli import arguments as shared
from launcher.cli import from_file, one_run
from launcher.cli.interrupts import Interrupts
from launcher.cli.strict_parser import StrictParser
from launcher.cli.usage import wrong_usage
from launcher.errors import INTERRUPTED, LauncherError, NotFoundError
from launcher.object_names import PROGRAM

if TYPE_CHECKING:
    from launcher.backends.base import Backend, Plan


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    shared.file(parser)
    place(parser)
    parser.add_argument(
        "--owned-by",
        action="append",
        default=[],
        metavar="KIND/NAME",
        help="make this Job or ConfigMap the run's owner: Kubernetes deletes the run when its last owner is "
        "deleted. A run with the same owner is replaced, or followed if nothing has changed (Kubernetes; the "
        "Helm chart uses it)",
    )


def place(parser: StrictParser) -> None:
    """Where a run is started, and how."""
    shared.namespace(parser, "where they are to live, if the file does not say (default: the context's own)")
    parser.add_argument(
        "--backend",
        choices=shared.BACKENDS,
        default="kubernetes",
        help="a cluster or this machine (default: %(default)s)",
    )
    shared.context(parser)
    parser.add_argument("--detach", action="store_true", help="return at once; the run keeps running")
    parser.add_argument(
        "--replace",
        action="store_true",
        help="end a run of this name that is running; the new one resumes from its backup",
    )
    parser.add_argument(
        "--allow-network",
        action="store_true",
        help="with --backend local: the tasks have this machine's network, and are reached through it",
    )
    parser.add_argument(
        "--dry-run",
        choices=("client", "server"),
        metavar="client|server",
        help="only say what would be done: client (the same as --dry-run alone) asks nobody, server has the "
        "cluster check every object",
    )


def run(options: Namespace) -> int:
    """Starts a file's runs, one after the other; with --detach, all at once. Runs at the same time would
    share the cores.
    """
    if options.owned_by and options.backend != "kubernetes":
        raise wrong_usage("--owned-by", "names objects of a cluster: leave out --backend")
    if options.allow_network and options.backend != "local":
        raise wrong_usage("--allow-network", "is about runs on this machine: add --backend local")
    if options.dry_run:
        return _dry_run(options)
    from launcher.backends import backend_choice

    backend = backend_choice.named(
        options.backend, options.context, one_run.patience(options), allow_network=options.allow_network
    )
    begun: list[Plan] = []
    try:
        return _submit(options, backend, begun)
    except KeyboardInterrupt:
        if begun and options.backend == "local":
            raise  # the run ends with this process
        print(_after_interruption(backend, begun), file=sys.stderr)
        return INTERRUPTED


def _submit(options: Namespace, backend: Backend, begun: list[Plan]) -> int:
    """Starts the runs, and follows them; `begun` gets the plan of each before anything is made of it."""
    try:
        # The backend connects while the file is read.
        backend.prepare()
    except LauncherError:
        from_file.load(options)  # errors in the file are reported first
        raise
    from launcher import api

    worst = 0
    for plan in from_file.plans(options, backend.namespace):
        begun.append(plan)
        run = api.start(
            plan, backend, detach=options.detach, replace=options.replace, owners=options.owned_by or ()
        )
        for note in run.notes:
            print(note, file=sys.stderr)
        if options.detach:
            run_arguments = run.name + backend.options(run.namespace)
            print(f"run {run.name} is submitted; see: {PROGRAM} status {run_arguments}")
        else:
            # A run on a cluster continues without this process. On this machine its tasks would use cores
            # after Ctrl-C.
            with Interrupts() as interrupts:
                from launcher.cli import live_view  # once the tasks have been started

                code = live_view.watch(
                    backend,
                    run.name,
                    run.namespace,
                    stop_on_interrupt=options.backend == "local",
                    printing=_script_role(plan),
                    interrupts=interrupts,
                )
            worst = worst or code
            if code >= INTERRUPTED:
                break
    return worst


def _after_interruption(backend: Backend, begun: Sequence[Plan]) -> str:
    """Returns what Ctrl-C has left of the latest run, which may have been made, or removed again."""
    if not begun:
        return "interrupted; nothing was made"
    run, namespace = begun[-1].run, begun[-1].namespace
    try:
        status = backend.status(run, namespace)
    except NotFoundError:
        return f"interrupted; there is no run {run}"
    except LauncherError as error:
        return f"interrupted; whether there is a run {run} is not known: {error.message}"
    if status.ended:
        return f"interrupted; run {run} has ended before, and is left as it is"
    arguments = run + backend.options(namespace)
    return f"run {run} is still running; `{PROGRAM} wait {arguments}` follows it again"


def _dry_run(options: Namespace) -> int:
    from launcher.backends import backend_choice

    if options.dry_run == "client":
        for plan in from_file.plans(options, backend_choice.own_namespace(options.backend, options.context)):
            for item in plan.objects:
                print(f"{item['kind']} {item['metadata']['name']}")
            where = "on this machine" if options.backend == "local" else "in the cluster"
            print(
                f"run {plan.run}, namespace {plan.namespace}: a submission makes these objects {where}; "
                "nothing was done, and no program imported; `render` prints them"
            )
            if plan.as_jobset is not None and options.backend != "local":
                print(
                    "where the cluster has the kind JobSet, these Jobs become one JobSet: --dry-run=server "
                    "asks the cluster"
                )
        return 0
    if options.backend == "local":
        raise wrong_usage("--dry-run=server", "asks a cluster, and --backend local has none: try client")
    backend = backend_choice.named("kubernetes", options.context, one_run.patience(options))
    for plan in from_file.plans(options, backend.namespace):
        for line in backend.dry_run(plan, replace=options.replace):
            print(line)
        print(
            f"run {plan.run}, namespace {plan.namespace}: the cluster accepts this; nothing was changed, "
            "and no program imported"
        )
    return 0


def _script_role(plan: Plan) -> str:
    """Returns the role whose first task runs the user's own script or command; "" where a program is trained,
    because the runtime reports the progress of a program.
    """
    from launcher.backends.run_facts import submitted
    from launcher.object_names import ROLE_LABEL

    primary = plan.objects[0]
    if any(submitted(primary, "program", field) is not None for field in ("entrypoint", "script")):
        return ""
    return str(primary["metadata"]["labels"][ROLE_LABEL])
