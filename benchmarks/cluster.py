"""The cluster of the benchmarks that need an API server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measuring import ENVIRONMENT


@contextmanager
def cluster(directory: Path) -> Iterator[None]:
    """Uses the kubeconfig's cluster; without one, starts a control plane, which is the kubeconfig's until the
    end.
    """
    known = os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    if any(Path(path).exists() for path in known.split(os.pathsep)):
        yield
        return
    from benchmarks.control_plane import UnavailableError, control_plane

    try:
        # A real cluster has this controller too: it rewrites the Service's Endpoints.
        with control_plane(directory, more=("endpoints-controller",)) as started:
            os.environ["KUBECONFIG"] = ENVIRONMENT["KUBECONFIG"] = str(started.kubeconfig)
            yield
    except UnavailableError as reason:
        raise SystemExit(f"no kubeconfig, and {reason}") from None
