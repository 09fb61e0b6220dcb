"""Which backend a command speaks to."""

from __future__ import annotations

from launcher.backends.base import Backend
from launcher.errors import BackendError, NotFoundError


def named(name: str) -> Backend:
    """`local` or `kubernetes`."""
    if name == "local":
        from launcher.backends.local.backend import LocalBackend

        return LocalBackend()
    from launcher.backends.kubernetes.backend import KubernetesBackend

    return KubernetesBackend()


def holding(run: str, namespace: str) -> Backend:
    """The one that has the run: this machine, then the cluster of the current context.

    Raises NotFoundError that names both, also where there is no cluster to ask.
    """
    local, kubernetes = named("local"), named("kubernetes")
    try:
        local.status(run, namespace)
    except NotFoundError as here:
        try:
            kubernetes.status(run, namespace)
        except NotFoundError as there:
            raise NotFoundError(f"{here.message}; {there.message}", here.hint) from None
        except BackendError as error:
            raise NotFoundError(
                f"{here.message}, and no cluster was asked: {error.message}", here.hint
            ) from None
        return kubernetes
    return local
