"""Chooses the backend of a command."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from launcher.backends.base import Backend
from launcher.backends.checked_names import check_names
from launcher.backends.patience import Patience
from launcher.errors import BackendError, NotFoundError
from launcher.status import RunStatus


def named(
    name: str,
    context: str | None = None,
    patience: Patience | None = None,
    *,
    allow_network: bool = False,
) -> Backend:
    """`local` or `kubernetes`. `context` is the kubeconfig's, None for its current one; `patience`
    is with its API server; for `allow_network` see `LocalBackend`.
    """
    if name == "local":
        from launcher.backends.local.backend import LocalBackend

        return LocalBackend(allow_network=allow_network)
    from launcher.backends.kubernetes.backend import KubernetesBackend

    return KubernetesBackend(context=context, patience=patience)


def cluster_known() -> bool:
    """Whether there is a kubeconfig, or a pod's own service account. Nothing is asked of a cluster."""
    from launcher.backends.kubernetes.api_server import connection

    return connection.configured()


def all_or(name: str | None, context: str | None, patience: Patience | None = None) -> list[Backend]:
    """The one that is named, and else all there are: this machine, and the cluster of the current context."""
    if name is not None or context is not None:
        return [named(name or "kubernetes", context, patience)]
    return [named("local"), *([named("kubernetes", None, patience)] if cluster_known() else [])]


def runs(
    backends: Sequence[Backend],
    namespace: str | None,
    selected: Callable[[Mapping[str, str]], bool] | None = None,
    *,
    progress: bool = False,
    unreachable: Callable[[BackendError], None] | None = None,
) -> list[tuple[Backend, RunStatus]]:
    """All runs of these places, or of one namespace, whose labels are `selected`; see `Backend.runs`. Of
    several places one that does not answer goes to `unreachable`, if that is given; else BackendError.
    """
    selected_runs = []
    for backend in backends:
        try:
            statuses = backend.runs(namespace, progress=progress)
        except BackendError as error:
            if unreachable is None or len(backends) == 1:
                raise
            unreachable(error)
            continue
        selected_runs += [
            (backend, status) for status in statuses if selected is None or selected(status.labels)
        ]
    return selected_runs


def contexts() -> list[str]:
    """The names of the kubeconfig's contexts. Nothing is asked of a cluster."""
    from launcher.backends.kubernetes.api_server import connection

    return connection.contexts()


def own_namespace(name: str, context: str | None = None) -> str:
    """The backend's own namespace, or `default` where there is no kubeconfig."""
    try:
        return named(name, context).namespace
    except BackendError:
        if context is not None:
            raise
        return "default"


def sought(
    run: str,
    namespace: str | None,
    name: str | None,
    context: str | None,
    patience: Patience | None = None,
    *,
    claims: bool = False,
) -> tuple[Backend, str]:
    """The backend that has the run, and the namespace to use there. If neither a backend nor a context is
    given, this machine is searched first, then the cluster of the current context. With `claims`, a run of
    which only a claim is left, which `delete` removes, is found too.

    Raises NotFoundError, which says where was searched; BackendError if there is a cluster that does not
    answer, since it may have the run; and SpecError for a wrong name of a run or namespace.
    """
    check_names(namespace, run)
    if name is not None or context is not None:
        backend = named(name or "kubernetes", context, patience)
        return backend, namespace or backend.namespace
    local, cluster = named("local"), named("kubernetes", None, patience)
    try:
        local.status(run, namespace or local.namespace)
    except NotFoundError as here:
        try:
            meant = namespace or cluster.namespace
            if not (claims and cluster.claims_to_delete(run, meant)):
                cluster.status(run, meant)
        except NotFoundError as there:
            raise NotFoundError(f"{here.message}; {there.message}", here.hint) from None
        except BackendError as error:
            if cluster_known():
                message = f"{here.message}, and the cluster could not be asked: {error.message}"
                raise BackendError(message, error.hint) from None
            raise NotFoundError(
                f"{here.message}, and no cluster was asked: {error.message}", here.hint
            ) from None
        return cluster, meant
    return local, namespace or local.namespace
