"""Why a pod does not start, in words that stay the same as long as the cause does, and with what to do. Pure.

Kubelet and scheduler say the same thing in turns of words: "ErrImagePull: rpc error ..." and then "Back-off
pulling image ...", each with another delay or another count of tries.
"""

from __future__ import annotations

import re
from typing import Final

PASSING: Final = ("SchedulerError",)
"""Reasons that the scheduler mends by itself: two of its writes met."""

IN_STATUS: Final = ("BackOff", "Failed")
"""Reasons of events whose cause kubelet writes into the pod's status, too, and better."""

_CANNOT_MEND_ITSELF: Final = (
    "CreateContainerConfigError",
    "ErrImageNeverPull",
    "ImagePullBackOff",
    "InvalidImageName",
)
_MISSING: Final = re.compile(
    r"(?:persistentvolumeclaim|secret|configmap|serviceaccount|runtimeclass|storageclass\S*)"
    r' "?[^"\s]+"? not found'
    r"|no PriorityClass with name \S+ was found"
    r"|couldn't find key \S+ in |references non-existent (?:config|secret) key",
    re.IGNORECASE,
)
_REFUSED: Final = re.compile(
    r"violates PodSecurity|(?:maximum|minimum) \S+ usage per |max limit to request ratio per |failed quota: "
)
"""What the API server says to pods that break a rule of their namespace. "exceeded quota" is none: another
run may end.
"""
_OF_CREATION: Final = re.compile(r'^(?:Error creating: )?(?:pods "[^"]*" is forbidden: )?(?:pod rejected: )?')
"""What stands before the reason why a pod was not made. Each try gives the pod another name."""
_IMAGE: Final = {"ErrImagePull": "ImagePullBackOff", "ImagePullBackOff": "ImagePullBackOff"}
_BACK_OFF: Final = re.compile(r"^Back-off pulling image .*?(?:: ErrImagePull: |$)", re.DOTALL)
_OF_GRPC: Final = re.compile(r"rpc error: code = \w+ desc = ")
_OF_CONTAINERD: Final = re.compile(r"failed to pull and unpack image \S+ ")
_LIMIT: Final = 200
"""Characters of a registry's answer: it may be a page."""
_NOT_IN_IMAGE: Final = re.compile(
    r'exec: "([^"]+)": (?:executable file not found in \$PATH|.*no such file or directory)', re.DOTALL
)
_NO_COMMAND: Final = "the image has no "
_PYTHON: Final = re.compile(r"(?:.*/)?python(?:3(?:\.\d+)?)?")
_MEND_IMAGE: Final = "; mend the image's name, or name a Secret for the registry in imagePullSecrets"

_BY_ITSELF: Final = ": the pod starts then by itself"
_INSUFFICIENT: Final = re.compile(r"Insufficient ([\w./-]*\w)")
_ADVICE: Final = (
    (
        _INSUFFICIENT,
        "ask for less {0} in resources, or wait until a node has as much free",
    ),
    (re.compile(r"didn't match Pod's node affinity"), "mend nodeSelector: no node has such labels"),
    (re.compile(r"untolerated taint"), "add tolerations for the nodes' taints"),
    (
        re.compile(r'persistentvolumeclaim "(\S+)" not found'),
        "make the claim {0}, or mend its name" + _BY_ITSELF,
    ),
    (
        re.compile(r'serviceaccount "([^"]+)" not found'),
        "make the ServiceAccount {0}, or mend serviceAccountName" + _BY_ITSELF,
    ),
    (
        re.compile(r'RuntimeClass "([^"]+)" not found'),
        "make the RuntimeClass {0}, or mend runtimeClassName" + _BY_ITSELF,
    ),
    (
        re.compile(r"no PriorityClass with name (\S+) was found"),
        "make the PriorityClass {0}, or mend priorityClassName" + _BY_ITSELF,
    ),
    (
        re.compile(r"couldn't find key (\S+) in (ConfigMap|Secret) (?:\S+/)?(\S+)"),
        "add the key {0} to the {1} {2}, or mend its name" + _BY_ITSELF,
    ),
    (
        re.compile(r"references non-existent (?:config|secret) key: (\S+)"),
        "add the key {0}, or mend items in volumes" + _BY_ITSELF,
    ),
    (
        re.compile(r"is not present with pull policy of Never"),
        "load the image onto the nodes, or mend image or imagePullPolicy",
    ),
    (
        re.compile(r"violates PodSecurity .*\bvolumes?\b", re.DOTALL),
        "mend volumes: the namespace does not allow all of them",
    ),
    (
        re.compile(r"violates PodSecurity"),
        "mend podTemplate, or have the namespace's label pod-security.kubernetes.io/enforce allow it",
    ),
    (
        re.compile(r"maximum (\S+) usage per "),
        "ask for less {0}, by resources.{0}: a LimitRange of the namespace allows no more",
    ),
    (
        re.compile(r"minimum (\S+) usage per "),
        "ask for more {0}, by resources.{0}: a LimitRange of the namespace allows no less",
    ),
    (
        re.compile(r"(\S+) max limit to request ratio per "),
        "bring resources.requests.{0} and resources.limits.{0} together, for the namespace's LimitRange",
    ),
    (
        re.compile(r"failed quota: .*must specify (\S+) for: "),
        "set resources.{0}: a quota of the namespace counts it",
    ),
    (
        re.compile(r"exceeded quota: [^,]*, requested: "),
        "ask for less in resources, or wait until another run ends",
    ),
    (
        re.compile(r'storageclass\S* "[^"]*" not found'),
        "mend spec.storage.storageClassName: `kubectl get storageclass` lists those there are",
    ),
    (
        re.compile(r"(secret|configmap) \"?([^\"\s]+)\"? not found"),
        "make the {0} {1}, or mend its name" + _BY_ITSELF,
    ),
)
_WITH_ADVICE: Final = ("CreateContainerConfigError", "ErrImageNeverPull", "FailedMount", "FailedScheduling")


def cannot_mend_itself(reason: str, message: str) -> bool:
    """Returns whether a pod waits for ever for that reason, unless somebody mends something. A node may
    become free by itself, so waiting for one does not count.
    """
    if reason in _CANNOT_MEND_ITSELF or _MISSING.search(message):
        return True
    return reason == "FailedCreate" and _REFUSED.search(message) is not None


def cannot_be_mended(reason: str, message: str) -> bool:
    """Returns whether the pods of this Job can never start: its template cannot be changed."""
    return reason == "InvalidImageName" or (reason == "StartError" and _NO_COMMAND in message)


def waits_for_claims(message: str) -> bool:
    """Returns whether a pod waits for its claims' volumes, as the scheduler says it. It does not say why."""
    return "unbound immediate PersistentVolumeClaims" in message


def lacking(message: str) -> str:
    """Returns the resource of which no node has enough free, "" where that is not the reason."""
    match = _INSUFFICIENT.search(message)
    return match[1] if match else ""


def for_user(reason: str, message: str) -> tuple[str, str]:
    """Returns reason and message of a pod that does not start, for the user. Others are returned as they
    are.
    """
    if reason in _IMAGE:
        return _IMAGE[reason], _image(message) + _MEND_IMAGE
    if reason == "StartError" and (missing := _NOT_IN_IMAGE.search(message)):
        if _PYTHON.fullmatch(missing[1]):
            advice = "submit the run again with one that has TensorFlow and Python 3.9 or newer"
        else:
            advice = "mend command, or name an image that has it"
        return reason, f"{_NO_COMMAND}{missing[1]}; {advice}"
    if reason == "Unschedulable":
        message = _nodes(message)
    elif reason == "FailedCreate":
        message = _OF_CREATION.sub("", message)
    elif reason not in _WITH_ADVICE:
        return reason, message
    for pattern, advice in _ADVICE:
        if match := pattern.search(message):
            return reason, f"{message.rstrip('.')}; {advice.format(*match.groups())}"
    return reason, message


def at_the_end(message: str) -> str:
    """Returns what `for_user` has made, for a run that is ended for it: nothing starts then by itself."""
    return message.replace(_BY_ITSELF, "")


def _image(message: str) -> str:
    """The registry's answer."""
    answer = _BACK_OFF.sub("", message) or message
    answer = _OF_CONTAINERD.sub("", _OF_GRPC.sub("", answer)).strip()
    return answer if len(answer) <= _LIMIT else answer[:_LIMIT] + "..."


def _nodes(message: str) -> str:
    """What the scheduler says of the nodes, without what preempting other pods would come to, and without the
    "not found" that it adds to whatever was not.
    """
    return re.split(r"\.? (?:preemption:|no new claims to deallocate|not found$)", message)[0]
