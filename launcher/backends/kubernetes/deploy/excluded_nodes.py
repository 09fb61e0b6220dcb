"""Nodes that the next start of a run leaves out, since a precheck found them far off from the others.

The primary Job, or the JobSet, keeps their names in an annotation: when a run is suspended, its pods go, and
with them what they have measured.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from launcher.backends import precheck_outliers
from launcher.backends.kubernetes.api_server.client import Object
from launcher.backends.run_facts import submitted
from launcher.object_names import EXCLUDED_ANNOTATION
from launcher.status import RunStatus, annotations_of

_HOSTNAME: Final = "kubernetes.io/hostname"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def is_wanted(root: Object) -> bool:
    """Whether the run's file asks for it."""
    return submitted(root, "spec", "precheck", "exclude") is True


def kept(root: Mapping[str, Any]) -> tuple[str, ...]:
    """The nodes that were to be left out before."""
    return tuple(filter(None, annotations_of(root).get(EXCLUDED_ANNOTATION, "").split(",")))


def far_off(status: RunStatus) -> dict[str, str]:
    """The nodes that the run's tasks now find far off, and by what each is."""
    return {each.node: each.text for each in precheck_outliers.of_run(status) if each.node}


def annotation(nodes: Iterable[str]) -> dict[str, str]:
    """The annotation that keeps them."""
    return {EXCLUDED_ANNOTATION: ",".join(dict.fromkeys(nodes))}


def without(objects: Sequence[Object], nodes: Sequence[str]) -> list[Object]:
    """The objects of a plan, the primary first, whose pods are scheduled to other nodes."""
    if not nodes:
        return list(objects)
    primary, *others = copy.deepcopy(list(objects))
    primary["metadata"]["annotations"] = {**annotations_of(primary), **annotation(nodes)}
    for item in (primary, *others):
        for pod in pods_of(item):
            pod["affinity"] = elsewhere(pod.get("affinity") or {}, nodes)
    return [primary, *others]


def move(item: Object, nodes: Sequence[str]) -> tuple[str, str, str, Object]:
    """Kind, namespace, name and merge patch by which a Job or JobSet stays away from these nodes."""
    metadata, kind = item["metadata"], "JobSet" if "replicatedJobs" in item["spec"] else "Job"
    changed = copy.deepcopy({**item, "kind": kind})
    for pod in pods_of(changed):
        pod["affinity"] = elsewhere(pod.get("affinity") or {}, nodes)
    if kind == "JobSet":
        patch = {"replicatedJobs": changed["spec"]["replicatedJobs"]}
    else:
        patch = {"template": {"spec": {"affinity": changed["spec"]["template"]["spec"]["affinity"]}}}
    return kind, metadata["namespace"], metadata["name"], {"spec": patch}


def pods_of(item: Object) -> list[Object]:
    """The specs of the pods in a Job or JobSet; none in another object."""
    if item["kind"] == "JobSet":
        return [each["template"]["spec"]["template"]["spec"] for each in item["spec"]["replicatedJobs"]]
    return [item["spec"]["template"]["spec"]] if item["kind"] == "Job" else []


def elsewhere(affinity: Mapping[str, Any], nodes: Sequence[str]) -> Object:
    """The affinity, with all of these nodes left out. Of the terms of a node's affinity one is enough, so
    each gets the requirement; one of an earlier start is replaced.
    """
    ours = {"key": _HOSTNAME, "operator": "NotIn", "values": list(nodes)}
    of_nodes = dict(affinity.get("nodeAffinity") or {})
    terms = [dict(term) for term in (of_nodes.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]]
    for term in terms:
        term["matchExpressions"] = [
            *(each for each in term.get("matchExpressions") or () if not _is_ours(each, nodes)),
            ours,
        ]
    of_nodes[_REQUIRED] = {"nodeSelectorTerms": terms}
    return {**affinity, "nodeAffinity": of_nodes}


def _is_ours(requirement: Mapping[str, Any], nodes: Sequence[str]) -> bool:
    names = (requirement.get("key"), requirement.get("operator"))
    return names == (_HOSTNAME, "NotIn") and set(requirement.get("values") or ()) <= set(nodes)
