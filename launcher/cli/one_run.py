"""The run that the command line names, and the place that has it."""

from __future__ import annotations

import contextlib
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from launcher.cli.usage import wrong_usage
from launcher.errors import BackendError, NotFoundError
from launcher.object_names import PROGRAM

if TYPE_CHECKING:
    from launcher.backends.base import Backend
    from launcher.backends.patience import Patience
    from launcher.run import Run


def patience(options: Namespace, unasked: float | None = None) -> Patience:
    """Returns the patience with an API server; the user is told when it does not answer. `unasked` is the
    limit in seconds where the user did not choose the cluster.
    """
    from launcher.backends.patience import SECONDS as PATIENCE_SECONDS
    from launcher.backends.patience import Patience

    seconds = PATIENCE_SECONDS if options.request_timeout is None else options.request_timeout
    if unasked is not None and (options.request_timeout, options.backend, options.context) == (None,) * 3:
        seconds = unasked
    return Patience(seconds, lambda text: print(text, file=sys.stderr, flush=True))


YAML = (".yaml", ".yml")


def sought(
    options: Namespace, name: str | None = None, namespace: str | None = None, *, claims: bool = False
) -> tuple[Backend, str]:
    """Returns the backend that has the run, and its namespace: those of the command line if given. With
    `claims`, what is left of a deleted run counts too.
    """
    from launcher.backends import backend_choice

    name = options.name if name is None else name
    namespace = options.namespace if namespace is None else namespace
    if name.endswith(YAML):
        raise wrong_usage("NAME", f"expected a run's name, which is metadata.name in the file, not {name}")
    try:
        return backend_choice.sought(
            name, namespace, options.backend, options.context, patience(options), claims=claims
        )
    except NotFoundError as error:
        if hint := _meant(options, name, namespace):
            raise NotFoundError(error.message, f"{hint}\n{error.hint}") from None
        raise


def run(options: Namespace, name: str | None = None) -> Run:
    """Returns the run, as programs have it."""
    from launcher.run import Run

    backend, namespace = sought(options, name)
    return Run(options.name if name is None else name, namespace, backend)


def _meant(options: Namespace, name: str, namespace: str | None) -> str:
    """Returns what the name of a missing run may have meant: another run, or a task of one."""
    from launcher.backends import backend_choice
    from launcher.lists_and_counts import nearest

    names: list[str] = []
    for backend in backend_choice.all_or(options.backend, options.context, patience(options, 2.0)):
        with contextlib.suppress(BackendError):
            names += backend.names(namespace or backend.namespace)
    for run in names:
        if run in getattr(options, "tasks", ()):
            return f"The run's name comes first: `{PROGRAM} logs {run} {name}`."
        if name.startswith(f"{run}-"):
            return f"Is that a task of run {run}? `{PROGRAM} logs {run} {name}` shows what it prints."
    near = nearest(name, names)
    return f"Did you mean {near}?" if near else ""
