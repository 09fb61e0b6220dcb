"""What a run hangs on: the object whose deletion is the run's, and what tells how the run is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from launcher.backends.kubernetes.api.client import Object
from launcher.backends.kubernetes.state.jobsets import JobSetPicture, slim_jobset
from launcher.backends.kubernetes.state.kueue import slim_workload
from launcher.backends.kubernetes.state.run_state import Picture, slim_event, slim_job, slim_pod
from launcher.naming import GROUP_LABEL, QUEUE_LABEL, RUN_LABEL

Slim = Callable[[Object], Object]

_WARNINGS: Final = "type=Warning"


@dataclass(frozen=True)
class Seen:
    """Which objects of a kind are of interest, and what of them. `needed`: nothing is known without."""

    slim: Slim
    labels: str = ""
    fields: str = ""
    needed: bool = False


@dataclass(frozen=True)
class Anchor:
    """The primary Job, or the JobSet. `queue` is Kueue's, "" for none, and `group` the plain pod group's."""

    kind: str
    uid: str
    run: str
    queue: str = ""
    group: str = ""

    @classmethod
    def of(cls, item: Object) -> Anchor:
        """Of a whole primary Job, or JobSet."""
        metadata = item["metadata"]
        labels = metadata.get("labels") or {}
        run, uid = labels[RUN_LABEL], metadata["uid"]
        if "replicatedJobs" in item["spec"]:
            return cls("JobSet", uid, run, labels.get(QUEUE_LABEL, ""))
        pod = (item["spec"].get("template") or {}).get("metadata") or {}
        group = (pod.get("labels") or {}).get(GROUP_LABEL, "")
        return cls("Job", uid, run, (pod.get("labels") or {}).get(QUEUE_LABEL, "") if group else "", group)

    def picture(self) -> Picture:
        """A picture of the run, nothing seen yet."""
        picture = JobSetPicture(self.uid) if self.kind == "JobSet" else Picture(self.uid)
        picture.queue = self.queue
        return picture

    @property
    def workload(self) -> tuple[str, str]:
        """The selectors of labels and fields for Kueue's Workload."""
        if self.kind == "JobSet":
            return f"kueue.x-k8s.io/job-uid={self.uid}", ""
        return "", f"metadata.name={self.group}"

    @property
    def seen(self) -> Mapping[str, Seen]:
        """The kinds to look at."""
        own = f"{RUN_LABEL}={self.run}"
        kinds = {
            "Job": Seen(slim_job, own, needed=True),
            "Pod": Seen(slim_pod, own, needed=True),
            "Event": Seen(slim_event, fields=_WARNINGS),
        }
        if self.kind == "JobSet":
            kinds["JobSet"] = Seen(slim_jobset, own, needed=True)
        if self.queue:
            kinds["Workload"] = Seen(slim_workload, *self.workload)
        return kinds
