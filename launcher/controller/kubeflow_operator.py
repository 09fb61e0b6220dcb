"""Kubeflow's own controller of TFJobs, which must not run beside this one: both would train each TFJob."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from launcher.backends.kubernetes.api_server.api_errors import ApiError
from launcher.backends.kubernetes.api_server.client import Client
from launcher.controller import leases

LEASE: Final = "1ca428e5.training-operator.kubeflow.org"
"""The leader's, of every version since 1.4: `cmd/training-operator.v1/main.go`."""


def running(client: Client, namespaces: Sequence[str]) -> str:
    """Returns a sentence about the one that runs, "" where none does, as far as may be seen."""
    places: Sequence[str | None] = namespaces or [None]
    for namespace in places:
        try:
            items, _ = client.list("Lease", namespace, fields=f"metadata.name={LEASE}")
        except ApiError as error:
            if not error.no_right:
                raise
            continue
        for lease in items:
            if leases.is_held(lease, client.ahead):
                where = lease["metadata"]["namespace"]
                return (
                    f"a training-operator runs in namespace {where}, and would train each TFJob, too; end it:"
                    f" kubectl -n {where} scale deployment training-operator --replicas=0"
                )
    return ""
