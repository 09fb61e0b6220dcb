"""Ends a run's objects, and waits until they are gone."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Final

from launcher.backends.kubernetes.api_server.api_errors import ApiError
from launcher.backends.kubernetes.api_server.client import Client, Object
from launcher.backends.kubernetes.api_server.parallel import together
from launcher.backends.kubernetes.api_server.resources import OPTIONAL
from launcher.errors import BackendError
from launcher.object_names import GROUP_ANNOTATION, RUN_LABEL
from launcher.status import annotations_of, goes_with_run, is_primary

KINDS: Final = (
    "Job",
    "Pod",
    "Service",
    "ConfigMap",
    "NetworkPolicy",
    "PersistentVolumeClaim",
    *sorted(OPTIONAL),
)
"""The kinds of a run's objects. The launcher has made all but the pods."""

_GARBAGE_SECONDS: Final = 60.0
"""Time for the garbage collector and the kubelets, in addition to the pods' grace period."""


@dataclass(frozen=True)
class Item:
    """An object of a run. `owners` are the uids of the objects that own it. `kept`: it is a claim whose
    reclaim policy is to keep it. `going`: it is being deleted already.
    """

    kind: str
    name: str
    uid: str
    owners: frozenset[str]
    kept: bool
    primary: bool
    going: bool

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def items(client: Client, run: str, namespace: str, kinds: Sequence[str] = KINDS) -> list[Item]:
    """All objects with the run's label, claims that are kept included."""
    calls = [partial(_listed, client, kind, run, namespace) for kind in kinds]
    listed = zip(kinds, together(calls), strict=True)
    return [_item(kind, item) for kind, objects in listed for item in objects]


def _listed(client: Client, kind: str, run: str, namespace: str) -> list[Object]:
    try:
        if kind != "Workload":
            return client.list(kind, namespace, f"{RUN_LABEL}={run}", metadata_only=True)[0]
        # Kueue makes a Workload for a group of pods, and keeps the pods until that is deleted.
        workloads, _ = client.list(kind, namespace, fields=f"metadata.name={run}", metadata_only=True)
        return [item for item in workloads if GROUP_ANNOTATION in annotations_of(item)]
    except ApiError as error:
        # The cluster does not know the kind, or the user may not list it, and so has made none.
        if kind in OPTIONAL and (error.status == 404 or error.no_right):
            return []
        raise


def _item(kind: str, item: Object) -> Item:
    metadata = item["metadata"]
    owners = frozenset(owner["uid"] for owner in metadata.get("ownerReferences") or ())
    kept = kind == "PersistentVolumeClaim" and not goes_with_run(item)
    primary = kind in ("Job", "JobSet") and is_primary(item)
    going = bool(metadata.get("deletionTimestamp"))
    return Item(kind, metadata["name"], metadata["uid"], owners, kept, primary, going)


def keep_claims(client: Client, namespace: str, objects: Sequence[Item]) -> list[Item]:
    """The same objects, but no claim is deleted: the run that replaces this one needs them. A claim may
    belong to a Helm release, or to the primary Job, as earlier versions made it.
    """
    released = []
    for item in objects:
        if item.kind == "PersistentVolumeClaim" and not item.kept and not item.going:
            client.merge(item.kind, namespace, item.name, {"metadata": {"ownerReferences": None}})
            item = dataclasses.replace(item, kept=True)
        released.append(item)
    return released


def remove(client: Client, run: str, namespace: str, objects: Sequence[Item]) -> None:
    """Deletes the objects, except claims that are kept, and waits until they are gone.

    The primary Job is deleted first, and with it what it owns. Raises BackendError when something is left
    after the pods' grace and a minute.
    """
    # A JobSet first: its controller would make the Jobs again.
    doomed = sorted((item for item in objects if not item.kept), key=lambda item: item.kind != "JobSet")
    grace = _longest_grace(client, run, namespace)
    for item in doomed:
        if item.primary:
            client.delete(item.kind, namespace, item.name, item.uid)
    uids = {item.uid for item in doomed}
    # The garbage collector may not know a kind yet that was installed recently.
    known = all(item.kind == "Job" for item in doomed if item.primary)
    for item in doomed:
        if item.kind == "Pod":
            # A pod is deleted with its Job, which may be gone already. No right to delete single pods is
            # asked for.
            if not item.owners:
                fields = f"metadata.name={item.name}"
                client.delete_all("Pod", namespace, f"{RUN_LABEL}={run}", fields)
        elif not item.primary and (not known or item.kind in OPTIONAL or not uids & item.owners):
            client.delete(item.kind, namespace, item.name, item.uid)
    _wait(client, run, namespace, uids, grace + _GARBAGE_SECONDS)


def _wait(client: Client, run: str, namespace: str, uids: Set[str], seconds: float) -> None:
    until = time.monotonic() + seconds
    pause = 0.05
    while True:
        # A pod that its Job has made meanwhile is waited for, too.
        left = [item for item in items(client, run, namespace) if uids & {item.uid, *item.owners}]
        if not left:
            return
        if time.monotonic() > until:
            names = ", ".join(map(str, left[:5])) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
            one = f"{left[0].kind.lower()} {left[0].name} -n {namespace}"
            raise BackendError(
                f"run {run} is deleted, but {seconds:.0f} s later there still are: {names}",
                f"`kubectl describe {one}` tells what holds it: a finalizer, or a node that does not answer.",
            )
        client.patience.restart()  # the server has answered: it is the deletion that is waited for
        time.sleep(pause)
        pause = min(1.5 * pause, 1.0)


def _longest_grace(client: Client, run: str, namespace: str) -> float:
    jobs, _ = client.list("Job", namespace, f"{RUN_LABEL}={run}")
    graces = [job["spec"]["template"]["spec"].get("terminationGracePeriodSeconds") or 30 for job in jobs]
    return float(max(graces, default=30))
