"""The TFJobs of the cluster and what their runs consist of, as far as the watches have told."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from launcher.backends.kubernetes.state.jobsets import slim_jobset
from launcher.backends.kubernetes.state.root_object import RootObject
from launcher.backends.kubernetes.state.run_state import RunState, slim_job, slim_pod
from launcher.object_names import ROLE_LABEL, RUN_LABEL
from launcher.status import INDEX_KEY, RunStatus, is_primary, labels_of
from launcher.tfjob import conversion

Object = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name of a TFJob, and of its run."""

TFJOB: Final = "TFJob"
_SLIM: Final = {"Job": slim_job, "JobSet": slim_jobset, "Pod": slim_pod}
_REPLICA_INDEX: Final = f"{conversion.OPERATORS}replica-index"


@dataclass
class _Run:
    """`roots` are whole primary Jobs and JobSets, `slim` what the state of the run needs of each object; both
    by uid. `unlabelled` are the names of pods without the operator's index, with their role and index.
    """

    roots: dict[str, Object] = field(default_factory=dict)
    slim: dict[str, dict[str, Any]] = field(default_factory=lambda: {kind: {} for kind in _SLIM})
    unlabelled: dict[str, tuple[str, str]] = field(default_factory=dict)
    state: RunState | None = None
    root: str = ""
    """The uid of the root that `state` is of."""


class Observed:
    """What is there now. The watches write, and those who reconcile read, in other threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tfjobs: dict[Key, Object] = {}
        self._runs: dict[Key, _Run] = defaultdict(_Run)

    def see(self, kind: str, item: Mapping[str, Any], *, gone: bool) -> Key:
        """Takes the newest state of an object, or that it is `gone`. Returns whose it is."""
        metadata = item["metadata"]
        with self._lock:
            if kind == TFJOB:
                key = (metadata["namespace"], metadata["name"])
                self._tfjobs.pop(key, None) if gone else self._tfjobs.update({key: dict(item)})
                return key
            key = (metadata["namespace"], labels_of(item)[RUN_LABEL])
            self._put(self._runs[key], kind, dict(item), gone=gone)
            if not any(self._runs[key].slim.values()):
                del self._runs[key]
            return key

    def tfjob(self, key: Key) -> Object | None:
        """Returns the TFJob, None where there is none."""
        with self._lock:
            return self._tfjobs.get(key)

    def tfjobs(self) -> list[Key]:
        """Returns all that there are."""
        with self._lock:
            return list(self._tfjobs)

    def run(self, key: Key, owner: str) -> tuple[RunState, RunStatus] | None:
        """Returns the run that the TFJob with this uid owns; None before its root object was seen."""
        with self._lock:
            run = self._runs.get(key)
            if run is None:
                return None
            root = next((each for each in run.roots.values() if _owns(each, owner)), None)
            if root is None:
                return None
            if run.state is None or run.root != root["metadata"]["uid"]:
                run.root = root["metadata"]["uid"]
                run.state = RootObject.of(root).run_state()
                for kind, items in run.slim.items():
                    if kind != "JobSet" or items:
                        run.state.replace(kind, items.values())
            return run.state, run.state.status({})

    def unlabelled(self, key: Key) -> dict[str, tuple[str, str]]:
        """Returns role and index of each pod that lacks the operator's label, by its name."""
        with self._lock:
            run = self._runs.get(key)
            return {} if run is None else dict(run.unlabelled)

    @staticmethod
    def _put(run: _Run, kind: str, item: Object, *, gone: bool) -> None:
        metadata, slim = item["metadata"], _SLIM[kind](item)
        uid = metadata["uid"]
        if is_primary(item):
            run.roots.pop(uid, None) if gone else run.roots.update({uid: item})
        if kind == "Pod":
            labels = labels_of(item)
            run.unlabelled.pop(metadata["name"], None)
            if not gone and _REPLICA_INDEX not in labels and INDEX_KEY in labels:
                run.unlabelled[metadata["name"]] = labels.get(ROLE_LABEL, ""), labels[INDEX_KEY]
        if gone:
            run.slim[kind].pop(uid, None)
        else:
            run.slim[kind][uid] = slim
        if run.state is not None:
            (run.state.drop if gone else run.state.put)(kind, slim)


def _owns(root: Object, owner: str) -> bool:
    owners = root["metadata"].get("ownerReferences") or ()
    return any(each["uid"] == owner for each in owners)
