"""`delete` ends and removes runs."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from launcher.cli import arguments as shared
from launcher.cli import one_run
from launcher.cli.strict_parser import StrictParser
from launcher.cli.usage import wrong_usage
from launcher.errors import INTERRUPTED, LauncherError

if TYPE_CHECKING:
    from launcher.backends.base import Backend


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    parser.add_argument("names", metavar="NAME", nargs="*", default=[], help="the runs' names")
    parser.add_argument(
        "--all", action="store_true", help="all runs of the namespace, in the place that --backend names"
    )
    parser.add_argument(
        "-f", "--filename", metavar="FILE", help="the runs of this cluster.yaml; - is standard input"
    )
    parser.add_argument(
        "--yes", action="store_true", help="do not ask, on a terminal, where the model goes with the run"
    )
    shared.place(parser)


def run(options: Namespace) -> int:
    """Ends and removes runs, one after the other. Returns the exit code of the first that failed."""
    worst = 0
    for name, namespace, backend in _doomed(options):
        try:
            if backend is None:
                backend, space = one_run.sought(options, name, namespace, claims=True)
            else:
                space = namespace or backend.namespace
            code = _delete(backend, name, space, asks=not options.yes)
        except LauncherError as error:
            if not _several(options):
                raise
            print(f"error: {error.message}", file=sys.stderr)
            code = error.exit_code
        worst = worst or code
    return worst


def _delete(backend: Backend, run: str, namespace: str, *, asks: bool) -> int:
    """Deletes one run, unless the user is asked and says no."""
    from launcher.lists_and_counts import listed

    goes = backend.claims_to_delete(run, namespace)
    lost = f"what it has trained, in {listed(goes)}" if goes else ""
    if lost and asks and not _confirmed(f"This deletes run {run} and {lost}."):
        print(f"run {run} is left as it is", file=sys.stderr)
        return INTERRUPTED
    stays = backend.delete(run, namespace)
    remark = f"; so is {lost}" if lost else f"; {stays}" if stays else ""
    print(f"run {run} is deleted{remark}", flush=True)
    return 0


def _several(options: Namespace) -> bool:
    return bool(options.all or options.filename or len(options.names) > 1)


def _doomed(options: Namespace) -> list[tuple[str, str | None, Backend | None]]:
    """Returns the runs to delete: name, namespace if known, and backend if known. Raises SpecError."""
    from launcher.validation import loader

    given = [bool(options.names), options.all, options.filename is not None]
    if sum(given) != 1:
        message = (
            "one of the runs' names, --all and -f FILE"
            if any(given)
            else "the runs' names, or --all, or -f FILE"
        )
        raise wrong_usage("delete", f"expected {message}")
    if options.all:
        return _all_of_a_place(options)
    if options.names:
        files = [name for name in options.names if name.endswith(one_run.YAML)]
        if files:
            raise wrong_usage("NAME", f"expected a run's name; the runs of a file go with -f {files[0]}")
        return [(name, options.namespace, None) for name in dict.fromkeys(options.names)]
    doomed: list[tuple[str, str | None, Backend | None]] = []
    for loaded in loader.load(options.filename, []):
        metadata = loaded.cluster.metadata
        space = metadata.namespace if "namespace" in metadata.model_fields_set else None
        if options.namespace not in (None, space or options.namespace):
            raise wrong_usage("--namespace", f"the file says {space}: leave out one of them")
        doomed.append((metadata.name, space or options.namespace, None))
    return doomed


def _all_of_a_place(options: Namespace) -> list[tuple[str, str | None, Backend | None]]:
    """Returns all runs of one place. Where there are two places, the user must name one, since a deletion
    cannot be undone.
    """
    from launcher.backends import backend_choice

    named = options.backend or ("kubernetes" if options.context else None)
    if named is None and backend_choice.cluster_known():
        message = "whose runs: add --backend local, this machine's, or --backend kubernetes, the cluster's"
        raise wrong_usage("--all", message)
    backend = backend_choice.named(named or "local", options.context, one_run.patience(options))
    namespace = options.namespace or backend.namespace
    runs: list[tuple[str, str | None, Backend | None]] = [
        (status.run, status.namespace, backend) for status in backend.runs(namespace)
    ]
    if not runs:
        print(f"there are no runs in namespace {namespace}", file=sys.stderr)
    return runs


def _confirmed(warning: str) -> bool:
    """Returns whether the user agrees. It asks on a terminal only, because nobody can answer in a script."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    print(f"{warning} Delete it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
