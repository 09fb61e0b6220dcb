"""Names, labels and their limits, as Kubernetes sets them.

Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/ and RFC 1035, RFC 1123.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from typing import Final

COMMAND: Final = "tf-launcher"
"""As it is installed."""


def _program() -> str:
    folder, name = os.path.split(sys.argv[0] if sys.argv else "")
    if name != COMMAND:
        return f"python -m {__name__.partition('.')[0]}"
    found = folder in os.environ.get("PATH", "").split(os.pathsep)
    return COMMAND if found else shlex.quote(sys.argv[0])


PROGRAM: Final = _program()
"""How this program was called, for a message that names a command."""

LABEL_LENGTH: Final = 63
"""Characters in a DNS label, and in a label's value."""

DOMAIN: Final = "tf-launcher.dev"
"""The prefix of the project's own labels and annotations."""

CONTAINER: Final = "tensorflow"
"""The container with the program."""

RUN_LABEL: Final = f"{DOMAIN}/run"
ROLE_LABEL: Final = f"{DOMAIN}/role"
NODE_LABEL: Final = f"{DOMAIN}/node"
"""The run, on the pods that must be on one node."""
TENSORBOARD_LABEL: Final = f"{DOMAIN}/tensorboard"
"""The run, on the pod of its TensorBoard, which is none of the run's own: those reach each other's ports."""
COPY_LABEL: Final = f"{DOMAIN}/copy"
"""Its own name, on a pod that copies a run's files: it is none of the run's."""
PRIMARY_ANNOTATION: Final = f"{DOMAIN}/primary"
NEEDED_ANNOTATION: Final = f"{DOMAIN}/needed"
"""On a Job that is not the primary: `true` or `false`, whether the run fails when it does. Without it, the
role says."""
SPEC_ANNOTATION: Final = f"{DOMAIN}/spec"
RECLAIM_ANNOTATION: Final = f"{DOMAIN}/reclaim-policy"

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
"""Kueue's, on what is admitted as one."""
GROUP_LABEL: Final = "kueue.x-k8s.io/pod-group-name"
GROUP_ANNOTATION: Final = "kueue.x-k8s.io/is-group-workload"

_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DNS_1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_ENV_NAME = re.compile(r"[ -<>-~]+")
_QUANTITY = re.compile(r"\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)(n|u|m|k|[KMGTPE]i?|[eE][+-]?[0-9]{1,2})?")
_QUANTITY_LENGTH = 64


def job_name(run: str, role: str) -> str:
    """The Job of a role; with the index behind it, a pod's hostname."""
    return f"{run}-{role}"


def is_dns_1035(name: str) -> bool:
    """Whether a Service may be called so: a run's name must be, since its Service bears it."""
    return len(name) <= LABEL_LENGTH and _DNS_1035.fullmatch(name) is not None


def is_dns_1123(name: str) -> bool:
    """Whether a namespace or a volume may be called so."""
    return len(name) <= LABEL_LENGTH and _DNS_1123.fullmatch(name) is not None


def is_dns_subdomain(name: str) -> bool:
    """Whether most objects (a claim, a Secret, a service account) may be called so."""
    return len(name) <= 253 and all(_DNS_1123.fullmatch(part) for part in name.split("."))


def is_label_value(value: str) -> bool:
    """Whether a label may have this value; the empty one it may."""
    return value == "" or (len(value) <= LABEL_LENGTH and _QUALIFIED.fullmatch(value) is not None)


def is_label_key(key: str) -> bool:
    """Whether a label or an annotation may have this key: `name` or `prefix.example/name`."""
    prefix, slash, name = key.rpartition("/")
    if slash and not is_dns_subdomain(prefix):
        return False
    return len(name) <= LABEL_LENGTH and _QUALIFIED.fullmatch(name) is not None


def is_env_name(name: str) -> bool:
    """Whether Kubernetes 1.33+ takes it as an environment variable's name: printable ASCII without "="."""
    return _ENV_NAME.fullmatch(name) is not None


def is_quantity(text: str) -> bool:
    """Whether it is a Kubernetes quantity that is not negative: `500m`, `2Gi`, `1e3`, `4`. One of more
    digits would be beyond 2^63, for which Kubernetes takes 2^63, and slow to reckon with.
    """
    return len(text) <= _QUANTITY_LENGTH and _QUANTITY.fullmatch(text) is not None
