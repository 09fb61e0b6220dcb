"""Ends Jobs so that their record stays, with their finished pods and those pods' logs.

From outside, a Job can only be made to fail by its deadline. So that is set; the reason is kept in an
annotation, from which `run_state` takes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from launcher.backends.kubernetes.api_server.api_errors import ApiError
from launcher.backends.kubernetes.api_server.client import Client
from launcher.backends.kubernetes.state.run_state import STOPPED_ANNOTATION
from launcher.status import condition


def stop(client: Client, jobs: Iterable[Mapping[str, Any]], reason: str, message: str) -> list[str]:
    """Makes the Jobs that go on fail, with this reason and message. Returns their names.

    Kubernetes deletes their pods, with the pods' own grace.
    """
    stopped = []
    for job in jobs:
        metadata = job["metadata"]
        if is_over(job) or job["spec"].get("suspend") or metadata.get("deletionTimestamp"):
            continue
        patch = {
            "metadata": {"annotations": {STOPPED_ANNOTATION: f"{reason}: {message}"}},
            "spec": {"activeDeadlineSeconds": 1},
        }
        try:
            client.merge("Job", metadata["namespace"], metadata["name"], patch)
        except ApiError as error:
            if error.status != 404:
                raise
        else:
            stopped.append(metadata["name"])
    return stopped


def is_over(job: Mapping[str, Any]) -> bool:
    """Whether the Job has succeeded or failed."""
    return condition(job, "Complete", "Failed") is not None
