"""Which Kubernetes is new enough, and what an older one lacks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from launcher.backends.kubernetes.api_server.api_errors import ApiError
from launcher.backends.kubernetes.api_server.client import Client, Object
from launcher.errors import BackendError

OLDEST: Final = (1, 33)
"""Since this version all features that a run uses are generally available."""

_FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    "a Job's ttlSecondsAfterFinished": (1, 23),
    "Indexed Jobs and their suspend": (1, 24),
    "a Job's podFailurePolicy": (1, 31),
    "a Job's backoffLimitPerIndex": (1, 33),
}
"""Since when each is generally available. Source: Kubernetes' feature gates, removed ones included."""


def number(version: Object) -> tuple[int, int] | None:
    """Of what the server says about its version; None where that cannot be read."""
    match = re.match(r"v?(\d+)\.(\d+)", str(version.get("gitVersion") or ""))
    return (int(match[1]), int(match[2])) if match else None


def lacks(version: tuple[int, int]) -> list[str]:
    """What a server of that version lacks, or has not enabled by default."""
    return [f"{feature} ({since[0]}.{since[1]})" for feature, since in _FEATURES.items() if version < since]


def check_version(client: Client) -> None:
    """Raises BackendError for a cluster that is too old."""
    try:
        major_minor = number(client.version())
    except ApiError as error:
        if error.status == 403:
            return  # the requests themselves will show it
        raise
    if major_minor is not None and major_minor < OLDEST:
        raise BackendError(
            f"the cluster {client.connection.host} runs Kubernetes {major_minor[0]}.{major_minor[1]}; "
            f"this needs {OLDEST[0]}.{OLDEST[1]} or newer",
            f"It lacks, or has not for everybody: {', '.join(lacks(major_minor))}.",
        )
