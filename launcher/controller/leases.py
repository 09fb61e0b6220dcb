"""Who leads, by its lease: another installation of this controller, or Kubeflow's training-operator."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from launcher.backends.kubernetes.api_server.api_errors import ApiError
from launcher.backends.kubernetes.api_server.client import Client
from launcher.status import seconds

_FRESH_SECONDS: Final = 60.0
"""A lease is renewed every few seconds."""


def is_held(lease: Mapping[str, Any], ahead: float = 0.0) -> bool:
    """Returns whether somebody holds the lease. `ahead` is how far this machine's clock is ahead."""
    spec = lease.get("spec") or {}
    renewed = seconds(spec.get("renewTime")) or 0.0
    return bool(spec.get("holderIdentity")) and time.time() - ahead - renewed < _FRESH_SECONDS


def is_led(client: Client, name: str, namespace: str) -> bool:
    """Returns whether somebody holds the lease of this name; also where that may not be looked at."""
    try:
        leases, _ = client.list("Lease", namespace, fields=f"metadata.name={name}")
    except ApiError as error:
        if not error.no_right:
            raise
        return True
    return any(is_held(lease, client.ahead) for lease in leases)
