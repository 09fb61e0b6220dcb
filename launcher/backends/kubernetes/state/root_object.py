"""The root object of a run, which owns all others: deleting it deletes the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from launcher.backends.kubernetes.api_server.client import Object
from launcher.backends.kubernetes.state.jobsets import JobSetRunState, SlimJobSet, slim_jobset
from launcher.backends.kubernetes.state.kueue import slim_workload
from launcher.backends.kubernetes.state.run_state import (
    RunState,
    SlimEvent,
    SlimJob,
    SlimPod,
    SlimWorkload,
    slim_event,
    slim_job,
    slim_pod,
)
from launcher.backends.run_facts import submitted
from launcher.object_names import GROUP_LABEL, QUEUE_LABEL, RUN_LABEL
from launcher.status import labels_of

Slim = Callable[[Object], SlimJob | SlimPod | SlimEvent | SlimJobSet | SlimWorkload]

_WARNINGS: Final = "type=Warning"


@dataclass(frozen=True)
class Seen:
    """Which objects of a kind are read (by labels and fields), and what is kept of them. Without a `needed`
    kind there is no status.
    """

    slim: Slim
    labels: str = ""
    fields: str = ""
    needed: bool = False


@dataclass(frozen=True)
class RootObject:
    """The primary Job, or the JobSet. `created` is Kubernetes' time; `queue` is Kueue's, "" for none, and
    `group` the plain pod group's.
    """

    kind: str
    uid: str
    run: str
    created: str
    queue: str = ""
    group: str = ""
    prechecks: bool = False
    """Whether each task writes what it has measured of its node."""

    @classmethod
    def of(cls, item: Object) -> RootObject:
        """Of a whole primary Job, or JobSet."""
        metadata = item["metadata"]
        labels = labels_of(item)
        run, uid, created = labels[RUN_LABEL], metadata["uid"], str(metadata["creationTimestamp"])
        prechecks = bool(submitted(item, "spec", "precheck"))
        if "replicatedJobs" in item["spec"]:
            return cls("JobSet", uid, run, created, labels.get(QUEUE_LABEL, ""), prechecks=prechecks)
        pod = (item["spec"].get("template") or {}).get("metadata") or {}
        group = (pod.get("labels") or {}).get(GROUP_LABEL, "")
        queue = (pod.get("labels") or {}).get(QUEUE_LABEL, "") if group else ""
        return cls("Job", uid, run, created, queue, group, prechecks)

    def run_state(self) -> RunState:
        """The state of the run, with no object seen yet."""
        run_state = JobSetRunState(self.uid) if self.kind == "JobSet" else RunState(self.uid)
        run_state.queue = self.queue
        return run_state

    @property
    def workload(self) -> tuple[str, str]:
        """The selectors of labels and fields for Kueue's Workload."""
        if self.kind == "JobSet":
            return f"kueue.x-k8s.io/job-uid={self.uid}", ""
        return "", f"metadata.name={self.group}"

    @property
    def seen(self) -> Mapping[str, Seen]:
        """The kinds to look at."""
        selector = f"{RUN_LABEL}={self.run}"
        kinds = {
            "Job": Seen(slim_job, selector, needed=True),
            "Pod": Seen(slim_pod, selector, needed=True),
            "Event": Seen(slim_event, fields=_WARNINGS),
        }
        if self.kind == "JobSet":
            kinds["JobSet"] = Seen(slim_jobset, selector, needed=True)
        if self.queue:
            kinds["Workload"] = Seen(slim_workload, *self.workload)
        return kinds
