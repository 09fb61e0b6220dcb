"""The names of tasks and of their pods."""

from __future__ import annotations

from typing import Final

DISPATCHER: Final = "dispatcher"

DATA_WORKER: Final = "data-worker"
"""The roles of the data service (`spec.dataService`)."""


def in_names(role: str) -> str:
    """Returns the role as a part of the names of its Job and pods. It has no hyphen: the data workers of a
    run `x` and the workers of a run `x-data` would have the same names otherwise.
    """
    return role.replace("-", "")


def pod_name(run: str, role: str, index: int) -> str:
    """Returns the stable hostname that an Indexed Job gives its pod."""
    return f"{run}-{in_names(role)}-{index}"
