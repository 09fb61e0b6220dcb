"""Runs that other objects of their namespace own, such as those of a Helm release, and that are deleted with
them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from launcher.backends.base import PROGRAM, Plan
from launcher.backends.checked_names import check_object
from launcher.backends.kubernetes.api_server.client import Client, Object
from launcher.backends.kubernetes.api_server.resources import kind_of, owner_reference
from launcher.backends.kubernetes.deploy.submission import Submission
from launcher.backends.kubernetes.state import jobsets
from launcher.backends.run_facts import submitted
from launcher.errors import BackendError, ConflictError, Problem, SpecError
from launcher.object_names import RUN_LABEL
from launcher.status import condition, goes_with_run, labels_of

_KINDS: Final = {"job": "Job", "configmap": "ConfigMap", "tfjob": "TFJob"}
_SOURCE: Final = ("data", "binaryData")


def submit(client: Client, plan: Plan, owners: Sequence[str]) -> str:
    """Submits the run and makes the owners its own: the run is deleted when the last of them is. Returns what
    to tell the user.

    `owners` are `kind/name`, of a ConfigMap, a Job or a TFJob in the run's namespace; the last is the one
    that submits. If one of them owns a run of that name already, that run is replaced if its file or program
    differs. Otherwise it is kept, whether it goes on or has ended, since the submitting Job may have been
    started again. A failed run is kept only for the Job that has submitted it. A TFJob has one run in its
    life, which is kept.

    Raises SpecError if an owner is no `kind/name`, BackendError if it does not exist, ConflictError if
    another object owns the run of that name, and what `Submission.submit` raises.
    """
    references = [_reference(client, plan.namespace, owner) for owner in owners]
    primary = _owned(plan.objects[0], references)
    doomed = [
        item for item in plan.objects if item["kind"] == "PersistentVolumeClaim" and goes_with_run(item)
    ]
    others = [_owned(item, references) if item in doomed else item for item in plan.objects[1:]]
    owned = dataclasses.replace(plan, objects=[primary, *others])
    kind, name = kind_of(primary), primary["metadata"]["name"]
    live = client.get(kind, plan.namespace, name)
    # A run in the other form (Jobs or JobSet) is another run, and has the same owners.
    other = jobsets.other_form(client, primary, plan.run) if live is None else None
    if other is not None and not _owners(other) & {each["uid"] for each in references}:
        raise _foreign(client, plan, owners)
    if live is not None and labels_of(live).get(RUN_LABEL) == plan.run:
        theirs = _owners(live)
        if live["metadata"].get("deletionTimestamp"):
            pass
        elif not theirs & {each["uid"] for each in references}:
            raise _foreign(client, plan, owners)
        elif references[-1]["kind"] == "TFJob" or (
            _is_same(client, plan, live)
            and (condition(live, "Failed") is None or references[-1]["uid"] in theirs)
        ):
            for item in owned.objects:
                metadata = item["metadata"]
                there = item is primary or client.get(kind_of(item), plan.namespace, metadata["name"])
                if "ownerReferences" in metadata and there:
                    owners_of = {"metadata": {"ownerReferences": references}}
                    client.merge(kind_of(item), plan.namespace, metadata["name"], owners_of)
            return f"run {plan.run} is there already, and is what was submitted"
    return Submission(client, owned).submit(replace=True)


def _owned(item: Mapping[str, Any], references: Sequence[Object]) -> Object:
    return {**item, "metadata": {**item["metadata"], "ownerReferences": references}}


def _owners(item: Object) -> set[str]:
    return {each["uid"] for each in item["metadata"].get("ownerReferences") or ()}


def _reference(client: Client, namespace: str, owner: str) -> Object:
    kind, _, name = owner.partition("/")
    known = _KINDS.get(kind.lower())
    if known is None or not name:
        message = f"expected Job/NAME, ConfigMap/NAME or TFJob/NAME, not {owner}"
        raise SpecError([Problem("--owned-by", 0, 0, "", message)])
    check_object(name, "--owned-by")
    owner_object = client.get(known, namespace, name)
    if owner_object is None:
        raise BackendError(
            f"there is no {known} {name} in namespace {namespace}, which is to own the run",
            "It may have been deleted meanwhile; then there is nothing to do.",
        )
    return owner_reference(known, owner_object)


def _foreign(client: Client, plan: Plan, owners: Sequence[str]) -> ConflictError:
    arguments = plan.run + client.connection.options(plan.namespace)
    return ConflictError(
        f"there is a run {plan.run} in namespace {plan.namespace} that does not belong to {owners[0]}",
        f"Give this one another name (metadata.name), or remove the other with: {PROGRAM} delete {arguments}",
    )


def _is_same(client: Client, plan: Plan, live: Object) -> bool:
    """Whether both are made of the same file and the same program."""
    if submitted(live) != submitted(plan.objects[0]):
        return False
    name = f"{plan.run}-source"
    planned = next((i for i in plan.objects if (i["kind"], i["metadata"]["name"]) == ("ConfigMap", name)), {})
    there = client.get("ConfigMap", plan.namespace, name) or {}
    return all((there.get(field) or {}) == (planned.get(field) or {}) for field in _SOURCE)
