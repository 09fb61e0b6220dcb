"""Checks whether a run can be submitted to a namespace and carried out there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

from launcher.backends.base import PROGRAM, Finding
from launcher.backends.kubernetes.api_server.api_errors import ApiError
from launcher.backends.kubernetes.api_server.client import Client, Object
from launcher.backends.kubernetes.api_server.parallel import together
from launcher.backends.kubernetes.preflight.needed_rights import EXTENSION_RULES, OPTIONAL, RULES, TENSORBOARD
from launcher.backends.kubernetes.preflight.requirements import (
    EXTENSIONS,
    KUEUE,
    NO_QUEUE_ADVICE,
    Extension,
    extra_rights,
    needed,
    no_queue,
    queue_missing,
    queues,
)
from launcher.backends.kubernetes.preflight.versions import OLDEST, lacks, number
from launcher.quantities import quantity
from launcher.status import condition, labels_of

_LEVEL: Final = "pod-security.kubernetes.io/enforce"

_UNKNOWABLE: Final = (
    Finding(
        "NetworkPolicy",
        "unknown",
        "whether the cluster's network enforces it is not to be seen from outside",
        "Ask the administrator. Where it does not, anybody who reaches a task's port commands it: "
        "TensorFlow's servers do not ask who it is.",
    ),
    Finding(
        "images",
        "unknown",
        "whether the nodes can pull an image is known when they try",
        f"`{PROGRAM} status` names the reason if one cannot; a private registry needs imagePullSecrets.",
    ),
)


def examine(
    client: Client, namespace: str, objects: Sequence[Mapping[str, Any]] | None = None
) -> list[Finding]:
    """All findings. `objects` are those of the runs to be submitted; None means any run. Raises BackendError
    if no server answers or the user is not authenticated.
    """
    findings = [version(client), *_namespace(client, namespace)]
    wanted = None if objects is None else needed(objects)
    there = dict(zip(EXTENSIONS, together([partial(client.knows, e.kind) for e in EXTENSIONS]), strict=True))
    findings += _extensions(there, wanted)
    if there[KUEUE] and findings[1].verdict != "missing":
        findings += [_queue(client, namespace, queue) for queue in queues(objects or ())]
        findings += [_form(client)] if queues(objects or ()) else []
    if findings[1].verdict != "missing":
        findings += rights(client, namespace, RULES)
        for extension in there if wanted is None else wanted:
            if there[extension]:
                rules = EXTENSION_RULES[extension.kind]
                findings += rights(client, namespace, rules, None if wanted else extension.field)
        if objects is None or TENSORBOARD in extra_rights(objects):
            only_for = "spec.tensorboard" if objects is None else None
            findings += rights(client, namespace, EXTENSION_RULES[TENSORBOARD], only_for)
        findings += _quotas(client, namespace)
    return [*findings, _dns(client), *_UNKNOWABLE]


def _extensions(there: Mapping[Extension, bool], wanted: Sequence[Extension] | None) -> Iterator[Finding]:
    """Looks for the extensions that these runs ask for, or that any run may ask for."""
    for extension, installed in there.items():
        if wanted is not None and extension not in wanted:
            continue
        if installed:
            yield Finding(extension.project, "ok", f"is installed, for {extension.field}")
        elif wanted is not None:
            yield Finding(extension.project, "missing", extension.missing, extension.advice)
    absent = [f"{each.project} ({each.field})" for each, installed in there.items() if not installed]
    if wanted is None and absent:
        message = f"not installed, and refused where a file asks for it: {', '.join(absent)}"
        yield Finding("gangs", "ok", message)


def _queue(client: Client, namespace: str, queue: str) -> Finding:
    missing = queue_missing(client, namespace, queue)
    if missing is None:
        return Finding("queue", "unknown", f"{queue}: you may not look at LocalQueues")
    if missing:
        return Finding("queue", "missing", no_queue(namespace, queue), NO_QUEUE_ADVICE)
    return Finding("queue", "ok", f"{queue} is there")


def _form(client: Client) -> Finding:
    """Checks the kinds that a run needs which Kueue admits."""
    if client.knows("JobSet"):
        return Finding("JobSet", "ok", "is installed: a run that waits in a queue is one JobSet")
    return Finding(
        "JobSet",
        "warning",
        "is not installed: a run that waits in a queue is a group of pods",
        "Of one that fails with nobody following it, the quota is taken until it is deleted.",
    )


_DNS_NAMESPACE: Final = "kube-system"
_DNS_LABEL: Final = "k8s-app=kube-dns"
"""CoreDNS has it too, so that what looks for its predecessor finds it."""


def _dns(client: Client) -> Finding:
    """Whether what resolves the tasks' names runs."""
    advice = f"A task that waits for another says whether DNS answers: see `{PROGRAM} status`."
    try:
        pods, _ = client.list("Pod", _DNS_NAMESPACE, _DNS_LABEL)
    except ApiError as error:
        if error.status not in (403, 404):
            raise
        return Finding("DNS", "unknown", f"you may not look at its pods in {_DNS_NAMESPACE}", advice)
    if not pods:
        return Finding("DNS", "unknown", f"no pod in {_DNS_NAMESPACE} has the label {_DNS_LABEL}", advice)
    ready = sum(condition(pod, "Ready") is not None for pod in pods)
    message = f"{ready} of {len(pods)} pods of {_DNS_NAMESPACE} with the label {_DNS_LABEL} are ready"
    if ready:
        return Finding("DNS", "ok", message)
    advice = "Tasks find each other by their names, so they would wait for each other: ask the administrator."
    return Finding("DNS", "warning", message, advice)


def version(client: Client) -> Finding:
    """Whether the cluster is new enough."""
    connection = client.connection
    where = f"{connection.host} ({connection.origin})"
    try:
        server_version = client.version()
    except ApiError as error:
        if error.status != 403:
            raise
        return Finding("API server", "unknown", f"{where} answers, and does not tell its version")
    major_minor = number(server_version)
    if major_minor is None:
        return Finding(
            "API server", "unknown", f"{where} answers, with version {server_version.get('gitVersion')}"
        )
    message = f"{where} runs Kubernetes {major_minor[0]}.{major_minor[1]}"
    if major_minor < OLDEST:
        return Finding(
            "API server",
            "missing",
            f"{message}, and lacks {', '.join(lacks(major_minor))}",
            f"It must be {OLDEST[0]}.{OLDEST[1]} or newer.",
        )
    return Finding("API server", "ok", message)


def _namespace(client: Client, name: str) -> Iterator[Finding]:
    try:
        namespace = client.namespace(name)
    except ApiError as error:
        if error.status == 404:
            yield Finding(
                "namespace",
                "missing",
                f"there is no namespace {name}",
                f"Create it with `kubectl create namespace {name}`, or name another one with -n.",
            )
        elif error.status == 403:
            yield Finding("namespace", "unknown", f"{name}: you may not look at it, only into it")
            yield Finding(
                "Pod Security",
                "unknown",
                "its level stands on the namespace",
                "Runs meet every level, the strictest too, unless volumes or podTemplate say otherwise.",
            )
        else:
            raise
        return
    if (namespace.get("status") or {}).get("phase") == "Terminating":
        yield Finding("namespace", "missing", f"{name} is being deleted", "Name another one with -n.")
        return
    yield Finding("namespace", "ok", f"{name} is there")
    level = labels_of(namespace).get(_LEVEL)
    message = f"the namespace enforces {level}" if level else "the namespace enforces no level of its own"
    if level in (None, "privileged"):
        yield Finding("Pod Security", "ok", message)
    else:
        yield Finding(
            "Pod Security", "ok", f"{message}, which runs meet unless volumes or podTemplate say otherwise"
        )


def rights(
    client: Client,
    namespace: str,
    rules: Iterable[Mapping[str, Any]],
    only_for: str | None = None,
    them: Mapping[str, Any] | None = None,
) -> Iterator[Finding]:
    """Checks whether the user, or another one (see `Client.allowed`), has all these rights. `only_for`: the
    field of the file that needs them, if not every run does.
    """
    asked = [
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]
    answers = together(
        [partial(client.allowed, namespace, verb, group, resource, them) for group, resource, verb in asked]
    )
    allowed: dict[str, list[str]] = {}
    denied: dict[str, list[str]] = {}
    for (_, resource, verb), yes in zip(asked, answers, strict=True):
        (allowed if yes else denied).setdefault(resource, []).append(verb)
    for resource in dict.fromkeys(resource for _, resource, _ in asked):
        verbs = denied.get(resource, [])
        must = [verb for verb in verbs if (resource, verb) not in OPTIONAL]
        if not verbs:
            yield Finding(f"right to {resource}", "ok", ", ".join(allowed[resource]))
            continue
        verdict: Literal["missing", "warning"] = "missing" if must and only_for is None else "warning"
        lost = dict.fromkeys(OPTIONAL[resource, verb] for verb in verbs if (resource, verb) in OPTIONAL)
        if only_for is not None and must:
            lost = {f"a run with {only_for} is refused": None}
        advice = "" if verdict == "missing" else f"Without it, {', '.join(lost)}."
        yield Finding(f"right to {resource}", verdict, f"you may not {', '.join(verbs)}", advice)


def _quotas(client: Client, namespace: str) -> Iterator[Finding]:
    try:
        quotas, _ = client.list("ResourceQuota", namespace)
    except ApiError as error:
        if error.status != 403:
            raise
        yield Finding("quota", "unknown", "you may not see the namespace's quotas")
        return
    if not quotas:
        yield Finding("quota", "ok", "the namespace has none")
    for quota in quotas:
        yield _quota(quota)


def _quota(quota: Object) -> Finding:
    status = quota.get("status") or {}
    hard, used = status.get("hard") or quota["spec"].get("hard") or {}, status.get("used") or {}
    words = ", ".join(f"{name} {used.get(name, '0')} of {limit}" for name, limit in hard.items())
    exhausted = [name for name, limit in hard.items() if _spent(used.get(name, "0"), limit)]
    message = f"{quota['metadata']['name']}: {words} used"
    if not exhausted:
        return Finding("quota", "ok", message)
    return Finding(
        "quota",
        "warning",
        f"{message}: no {', '.join(exhausted)} left",
        "Delete a finished run, or ask for more; what is over the quota is refused, or never starts.",
    )


def _spent(used: str, limit: str) -> bool:
    try:
        return quantity(str(used)) >= quantity(str(limit))
    except ValueError:
        return False
