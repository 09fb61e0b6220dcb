"""A run that is one JobSet, seen as the Jobs of its roles: those that its controller has made, and those that
it has not made yet or has removed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypedDict

from launcher.backends.kubernetes.api_server.api_errors import ApiError
from launcher.backends.kubernetes.api_server.client import Client, Object
from launcher.backends.kubernetes.state.run_state import RunState, SlimJob, SlimUid, find_primary, slim_job
from launcher.object_names import RUN_LABEL
from launcher.status import RUN_ENDED, Records, RunStatus, condition, is_primary

_ENDS = {"Completed": "succeeded", "Failed": "failed"}


def listed(client: Client, namespace: str | None, run: str = "") -> list[Object]:
    """The JobSets that are runs; none where the cluster does not know the kind, or we may not look."""
    try:
        jobsets, _ = client.list("JobSet", namespace, f"{RUN_LABEL}={run}" if run else RUN_LABEL)
    except ApiError as error:
        if error.status == 404 or error.no_right:
            return []
        raise
    return list(filter(is_primary, jobsets))


def owner_of(job: Mapping[str, Any]) -> str:
    """The uid of the JobSet that the Job is a part of, "" for another Job."""
    owners = job["metadata"].get("ownerReferences") or ()
    return next((str(owner["uid"]) for owner in owners if owner["kind"] == "JobSet"), "")


def other_form(client: Client, first: Mapping[str, Any], run: str) -> Object | None:
    """The primary Job of the run where `first`, the object to be made, is a JobSet, and the run's JobSet
    where it is a Job; None where there is none.
    """
    namespace = first["metadata"]["namespace"]
    if first["kind"] != "JobSet":
        return next(iter(listed(client, namespace, run)), None)
    jobs, _ = client.list("Job", namespace, f"{RUN_LABEL}={run}")
    primary = find_primary(jobs)
    return None if primary is None or owner_of(primary) else primary


def end(jobset: Mapping[str, Any]) -> tuple[str, Object]:
    """`succeeded` or `failed`, and the condition that says so; both empty while it goes on."""
    decisive = condition(jobset, *_ENDS)
    return ("", {}) if decisive is None else (_ENDS[decisive["type"]], dict(decisive))


def jobs_of(jobset: Mapping[str, Any]) -> list[Object]:
    """The Jobs that its controller makes, the primary first, as they are before it has made them."""
    metadata, spec = jobset["metadata"], jobset["spec"]
    return [
        {
            "metadata": {
                **each["template"].get("metadata", {}),
                "name": f"{metadata['name']}-{each['name']}-0",
                "namespace": metadata["namespace"],
                "uid": f"{metadata['uid']}/{each['name']}",
                "creationTimestamp": metadata.get("creationTimestamp"),
                "ownerReferences": [{"kind": "JobSet", "name": metadata["name"], "uid": metadata["uid"]}],
            },
            "spec": {**each["template"]["spec"], "suspend": bool(spec.get("suspend"))},
        }
        for each in spec["replicatedJobs"]
    ]


class SlimJobSet(TypedDict):
    """`end` is what the function `end` returns, and `jobs` are those of `jobs_of`, slim."""

    metadata: SlimUid
    end: tuple[str, Object]
    restarts: int
    jobs: list[SlimJob]


def slim_jobset(jobset: Object) -> SlimJobSet:
    """What of a JobSet the state of its run needs."""
    return {
        "metadata": {"uid": jobset["metadata"]["uid"]},
        "end": end(jobset),
        "restarts": (jobset.get("status") or {}).get("restarts") or 0,
        "jobs": [slim_job(job) for job in jobs_of(jobset)],
    }


class JobSetRunState(RunState):
    """The state of a run whose JobSet has this uid."""

    _root_kind = "JobSet"

    def __init__(self, uid: str) -> None:
        super().__init__(uid)
        self._jobset: SlimJobSet | None = None

    def put(self, kind: str, item: Any) -> None:
        """See `RunState.put`."""
        if kind != "JobSet":
            super().put(kind, item)
        elif not self.deleted and item["metadata"]["uid"] == self._primary:
            self._jobset = item

    @property
    def primary(self) -> SlimJob | None:
        """See `RunState.primary`."""
        return self.jobs[0] if self.jobs else None

    @property
    def jobs(self) -> list[SlimJob]:
        """See `RunState.jobs`. All of the JobSet's, once that was seen."""
        made = super().jobs
        if self._jobset is None:
            return made
        names = {job["metadata"]["name"]: job for job in made}
        end = self._jobset["end"]
        return [_seen(job, names.get(job["metadata"]["name"]), *end) for job in self._jobset["jobs"]]

    def status(self, records: Records) -> RunStatus:
        """See `RunState.status`. A restart of all Jobs counts as one restart of each role."""
        status = super().status(records)
        restarts = self._jobset["restarts"] if self._jobset is not None else 0
        roles = [dataclasses.replace(role, restarts=role.restarts + restarts) for role in status.roles]
        return dataclasses.replace(status, roles=tuple(roles))


def _seen(planned: SlimJob, made: SlimJob | None, word: str, why: Object) -> SlimJob:
    """The Job as the run's status needs it: it ends when the JobSet does. `word` is how the JobSet has ended,
    "" while it goes on.
    """
    status = (made or planned)["status"]
    if not word:
        # The JobSet's controller may start it again, with all the others.
        kept = [
            each for each in status.get("conditions") or () if each["type"] not in ("Failed", "FailureTarget")
        ]
        return {**(made or planned), "status": {**status, "conditions": kept}}
    if made is not None and condition(made, "Complete", "Failed") is not None:
        return made
    # Its controller removes what still runs at the end.
    decides = is_primary(planned)
    ended = {
        "type": "Complete" if decides and word == "succeeded" else "Failed",
        "status": "True",
        "reason": why.get("reason", "") if decides else RUN_ENDED,
        "message": why.get("message", "") if decides else "Stopped, since the run has ended",
        "lastTransitionTime": why.get("lastTransitionTime"),
    }
    return {**(made or planned), "status": {**status, "conditions": [ended]}}
