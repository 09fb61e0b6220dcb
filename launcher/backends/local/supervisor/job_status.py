"""The run's Jobs as Kubernetes would show them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from launcher.backends.local.supervisor.jobs import JobController
from launcher.object_names import SPEC_ANNOTATION
from launcher.status import annotations_of


class Clock:
    """Converts monotonic times to times of day. Setting the system clock does not change them."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def text(self, monotonic: float) -> str:
        """As Kubernetes writes its MicroTime."""
        moment = datetime.fromtimestamp(monotonic + self._offset, timezone.utc)
        return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def job_view(
    job: Mapping[str, Any], controller: JobController, clock: Clock, terminating: int
) -> dict[str, Any]:
    """The Job with its status, without its pod template and the copy of the spec."""
    metadata = dict(job["metadata"])
    metadata["annotations"] = {
        name: value for name, value in annotations_of(job).items() if name != SPEC_ANNOTATION
    }
    metadata["generation"] = controller.generation
    spec = {name: value for name, value in job["spec"].items() if name != "template"}
    status = {**controller.status(), "terminating": terminating}
    status["active"] -= terminating
    if controller.started_at is not None:
        status["startTime"] = clock.text(controller.started_at)
    if controller.finished_at is not None and controller.verdict and controller.verdict.type == "Complete":
        status["completionTime"] = clock.text(controller.finished_at)
    status["conditions"] = _conditions(controller, clock)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            **spec,
            "completions": controller.completions,
            "parallelism": controller.parallelism,
            "suspend": controller.suspended,
        },
        "status": status,
    }


def is_decided(job: Mapping[str, Any]) -> bool:
    """Whether a `job_view` has come to its end, or will when its pods are gone."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(condition["type"] != "Suspended" for condition in conditions)


def _conditions(controller: JobController, clock: Clock) -> list[dict[str, Any]]:
    verdict = controller.verdict
    if verdict is None:
        if not controller.suspended:
            return []
        return [{"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended"}]
    body = {"status": "True", "reason": verdict.reason, "message": verdict.message}
    interim = "SuccessCriteriaMet" if verdict.type == "Complete" else "FailureTarget"
    if controller.finished_at is None:
        return [{"type": interim, **body}]
    at = {"lastTransitionTime": clock.text(controller.finished_at)}
    return [{"type": interim, **body, **at}, {"type": verdict.type, **body, **at}]
