"""Checks whether a cluster's controller of TFJobs works."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, Final

from launcher.backends.base import PROGRAM, Finding
from launcher.backends.kubernetes.api_server.api_errors import ApiError
from launcher.backends.kubernetes.api_server.client import Client, Object
from launcher.backends.kubernetes.preflight import doctor, needed_rights
from launcher.controller import LEASE, kubeflow_operator
from launcher.controller.observed import TFJOB
from launcher.controller.reconciler import is_nobodys
from launcher.lists_and_counts import listed
from launcher.status import seconds

_SELECTOR: Final = "app.kubernetes.io/part-of=tf-launcher,app.kubernetes.io/component=controller"
_TAKEN_SECONDS: Final = 60.0
"""A TFJob is taken within a second, and by a controller that starts within half a minute."""
_SHOWN: Final = 4
"""TFJobs that are named, at most."""


def examine(client: Client, namespace: str) -> list[Finding]:
    """All findings. The controller is looked for in all namespaces, or in `namespace` where that is not
    allowed. Raises BackendError if no server answers or the user is not authenticated.
    """
    findings = [doctor.version(client), _kind(client)]
    try:
        deployments = _anywhere(client, "Deployment", namespace, _SELECTOR)
    except ApiError as error:
        if not error.no_right:
            raise
        advice = "Ask who installed it, or name its namespace with -n."
        return [*findings, Finding("controller", "unknown", "you may not look for its Deployment", advice)]
    if not deployments:
        advice = "Install it: docs/controller.md says how."
        return [*findings, Finding("controller", "missing", "no Deployment has its labels", advice)]
    for deployment in deployments:
        findings += _deployment(client, deployment)
    return [*findings, *_overlaps(deployments)]


@dataclass(frozen=True)
class _Installation:
    """A Deployment's `namespaces` are those whose TFJobs it trains, empty for all."""

    name: str
    namespaces: Sequence[str]
    lease_namespace: str

    @classmethod
    def of(cls, deployment: Object) -> _Installation:
        home = deployment["metadata"]["namespace"]
        containers = deployment["spec"]["template"]["spec"]["containers"]
        pairs = list(pairwise(word for each in containers for word in each.get("args") or ()))
        spaces = [value for option, value in pairs if option in ("-n", "--namespace")]
        where = next((value for option, value in pairs if option == "--lease-namespace"), home)
        return cls(f"{deployment['metadata']['name']} in namespace {home}", spaces, where)


def _overlaps(deployments: Sequence[Object]) -> Iterator[Finding]:
    """Finds installations that train the TFJobs of the same namespace. Whichever takes a TFJob first has it,
    so that none is trained twice.
    """
    for one, other in combinations(map(_Installation.of, deployments), 2):
        either, both = one.namespaces or other.namespaces, {*one.namespaces} & {*other.namespaces}
        if one.lease_namespace == other.lease_namespace:
            continue  # one of their replicas leads
        if not (one.namespaces and other.namespaces):
            both = {*either}  # one is for all
        if both or not either:
            where = f"namespace {listed(sorted(both), _SHOWN)}" if both else "all namespaces"
            message = f"{one.name} and {other.name} both train the TFJobs of {where}"
            yield Finding("controllers", "warning", message, "Uninstall one, or give each its namespaces.")


def _anywhere(client: Client, kind: str, namespace: str, labels: str = "") -> list[Object]:
    try:
        return client.list(kind, None, labels)[0]
    except ApiError as error:
        if not error.no_right:
            raise
        return client.list(kind, namespace, labels)[0]


def _kind(client: Client) -> Finding:
    if not client.knows(TFJOB):
        advice = "Have it defined: kubectl create -f manifests/controller/crd.yaml, or by the chart."
        return Finding(TFJOB, "missing", "the cluster does not know the kind (kubeflow.org/v1)", advice)
    if not client.knows(TFJOB, "status"):
        advice = "Replace its definition by manifests/controller/crd.yaml."
        return Finding(TFJOB, "missing", "its definition has no subresource status", advice)
    return Finding(TFJOB, "ok", "the cluster knows the kind, with its status")


def _deployment(client: Client, deployment: Object) -> Iterator[Finding]:
    metadata, spec, status = deployment["metadata"], deployment["spec"], deployment.get("status") or {}
    name, home = metadata["name"], metadata["namespace"]
    wanted, ready = spec.get("replicas", 1), status.get("readyReplicas") or 0
    message = f"{name} in namespace {home}: {ready} of {wanted} pods are ready"
    chosen = ",".join(f"{label}={value}" for label, value in spec["selector"].get("matchLabels", {}).items())
    advice = f"kubectl -n {home} describe pods -l {chosen}"
    if ready:
        yield Finding(
            "controller", "ok" if ready >= wanted else "warning", message, advice * (ready < wanted)
        )
    else:
        yield Finding("controller", "missing", message, advice)
    pod = spec["template"]["spec"]
    installation = _Installation.of(deployment)
    spaces, where = installation.namespaces, installation.lease_namespace
    yield _lease(client, where, f"kubectl -n {home} logs deployment/{name} --all-pods")
    yield _training_operator(client, spaces)
    account = f"system:serviceaccount:{home}:{pod.get('serviceAccountName', 'default')}"
    yield from _rights(client, account, home, where, spaces)
    yield _tfjobs(client, spaces)


def _lease(client: Client, namespace: str, advice: str) -> Finding:
    try:
        lease = client.get("Lease", namespace, LEASE)
    except ApiError as error:
        if not error.no_right:
            raise
        return Finding("lease", "unknown", f"you may not look at {LEASE} in namespace {namespace}")
    spec = (lease or {}).get("spec") or {}
    renewed = seconds(spec.get("renewTime"))
    if not spec.get("holderIdentity") or renewed is None:
        return Finding("lease", "missing", f"nobody leads: nobody has {LEASE}", advice)
    ago = max(time.time() - client.ahead - renewed, 0.0)
    message = f"{spec['holderIdentity']} leads, and renewed {LEASE} {ago:.0f} s ago"
    if ago > spec.get("leaseDurationSeconds", 0):
        return Finding("lease", "missing", f"nobody leads: {message}", advice)
    return Finding("lease", "ok", message)


def _training_operator(client: Client, spaces: Sequence[str]) -> Finding:
    if not all(client.allowed(space, "list", "coordination.k8s.io", "leases") for space in spaces or [""]):
        message = "you may not look for its lease"
        return Finding("operator", "unknown", message, "A training-operator would train each TFJob, too.")
    if sentence := kubeflow_operator.running(client, spaces):
        return Finding("operator", "missing", sentence, "Until then no TFJob is taken.")
    return Finding("operator", "ok", "no training-operator runs beside it")


def _rights(
    client: Client, account: str, home: str, lease_namespace: str, spaces: Sequence[str]
) -> Iterator[Finding]:
    """Checks those of the controller's service account, which only who may ask about others is told."""
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{home}", "system:authenticated"]
    them = {"user": account, "groups": groups}
    groups_of_all = {
        group for rule in (*needed_rights.RULES, *needed_rights.CONTROLLER) for group in rule["apiGroups"]
    }
    of_all: list[dict[str, Any]] = []
    of_some: list[dict[str, Any]] = []
    for rule in needed_rights.of_controller():
        (of_all if groups_of_all.issuperset(rule["apiGroups"]) else of_some).append(rule)
    wanted: list[tuple[str, list[dict[str, Any]], str | None]] = [
        (lease_namespace, needed_rights.ELECTION, None)
    ]
    for space in spaces or [""]:
        wanted += [(space, of_all, None), (space, of_some, "a queue or a schedulingPolicy")]
    bad: list[Finding] = []
    try:
        for space, rules, only_for in wanted:
            where = f"in namespace {space}" if space else "in all namespaces"
            for finding in doctor.rights(client, space, rules, only_for, them):
                if finding.verdict != "ok":
                    message = finding.message.replace("you may not", f"{account} may not")
                    bad.append(
                        Finding(finding.subject, finding.verdict, f"{message} {where}", finding.advice)
                    )
    except ApiError as error:
        if not error.no_right:
            raise
        yield Finding("rights", "unknown", f"you may not ask what {account} may do")
        return
    yield from bad or [Finding("rights", "ok", f"{account} has all that it needs")]


def _tfjobs(client: Client, spaces: Sequence[str]) -> Finding:
    if not client.knows(TFJOB):
        return Finding("TFJobs", "unknown", "there can be none")
    try:
        places: Sequence[str | None] = spaces or [None]
        jobs = [job for place in places for job in client.list(TFJOB, place)[0]]
    except ApiError as error:
        if not error.no_right:
            raise
        return Finding("TFJobs", "unknown", "you may not list them")
    before = time.time() - client.ahead - _TAKEN_SECONDS
    left = [
        f"{job['metadata']['namespace']}/{job['metadata']['name']}"
        for job in jobs
        if is_nobodys(job) and (seconds(job["metadata"].get("creationTimestamp")) or 0.0) < before
    ]
    if not left:
        return Finding("TFJobs", "ok", f"there are {len(jobs)}, and none waits to be taken")
    advice = (
        f"`kubectl describe tfjob` says why, in its events; `{PROGRAM} validate` what is wrong in a file."
    )
    return Finding("TFJobs", "warning", f"nobody has taken {listed(left, _SHOWN)}", advice)
