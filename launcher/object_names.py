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
"""The name of the installed command."""


def _program() -> str:
    folder, name = os.path.split(sys.argv[0] if sys.argv else "")
    if name != COMMAND:
        return f"python -m {__name__.partition('.')[0]}"
    is_on_path = folder in os.environ.get("PATH", "").split(os.pathsep)
    return COMMAND if is_on_path else shlex.quote(sys.argv[0])


PROGRAM: Final = _program()
"""How this program was called, for messages that name a command."""

LABEL_LENGTH: Final = 63
"""Characters in a DNS label, and in a label's value."""

DOMAIN: Final = "tf-launcher.dev"
"""The prefix of the project's own labels and annotations."""

ROLES: Final = ("chief", "worker", "extra-worker", "ps", "evaluator", "dispatcher", "data-worker")
"""As the command line and the addresses have them. `launcher.config.spec.RoleName` is their type."""

CONTAINER: Final = "tensorflow"
"""The name of the container that runs the program."""

RUN_LABEL: Final = f"{DOMAIN}/run"
ROLE_LABEL: Final = f"{DOMAIN}/role"
NODE_LABEL: Final = f"{DOMAIN}/node"
"""The label with the run's name, on the pods that must be on one node."""
TENSORBOARD_LABEL: Final = f"{DOMAIN}/tensorboard"
"""The label with the run's name on its TensorBoard's pod. That pod lacks the run's own label, whose pods may
reach each other's ports.
"""
COPY_LABEL: Final = f"{DOMAIN}/copy"
"""The label with its own name on a pod that copies a run's files. That pod lacks the run's own label."""
PRIMARY_ANNOTATION: Final = f"{DOMAIN}/primary"
NEEDED_ANNOTATION: Final = f"{DOMAIN}/needed"
"""On a Job that is not the primary: `true` or `false`, whether its failure fails the run. Without the
annotation, the role decides.
"""
ELASTIC_ANNOTATION: Final = f"{DOMAIN}/elastic"
"""On the workers' Job of an elastic run: how many there may be, see `worker.contract.run_config`."""
SPEC_ANNOTATION: Final = f"{DOMAIN}/spec"
EXCLUDED_ANNOTATION: Final = f"{DOMAIN}/excluded-nodes"
"""On the primary Job or the JobSet: the names of nodes that its pods stay away from, with commas."""
RECLAIM_ANNOTATION: Final = f"{DOMAIN}/reclaim-policy"

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
"""Kueue's label, on an object that is admitted as a whole."""
GROUP_LABEL: Final = "kueue.x-k8s.io/pod-group-name"
GROUP_ANNOTATION: Final = "kueue.x-k8s.io/is-group-workload"

_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DNS_1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_ENV_NAME = re.compile(r"[ -<>-~]+")
_QUANTITY = re.compile(r"\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)(n|u|m|k|[KMGTPE]i?|[eE][+-]?[0-9]{1,2})?")
_QUANTITY_LENGTH = 64


def job_name(run: str, role: str) -> str:
    """Returns the name of a role's Job. With the index appended, it is a pod's hostname."""
    from worker.contract.task_names import in_names  # here, since `--help` has no use for it

    return f"{run}-{in_names(role)}"


def run_name(text: str) -> str:
    """Returns `train_MNIST` as `train-mnist`, and `01_mnist` as `run-01-mnist`."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return (name if name[:1].isalpha() else f"run-{name}")[:LABEL_LENGTH].strip("-")


def is_dns_1035(name: str) -> bool:
    """Returns whether a Service may have this name. A run's name must be valid, since its Service has it."""
    return len(name) <= LABEL_LENGTH and _DNS_1035.fullmatch(name) is not None


def is_dns_1123(name: str) -> bool:
    """Returns whether a namespace or a volume may have this name."""
    return len(name) <= LABEL_LENGTH and _DNS_1123.fullmatch(name) is not None


def is_dns_subdomain(name: str) -> bool:
    """Returns whether most objects (a claim, a Secret, a service account) may have this name."""
    return len(name) <= 253 and all(_DNS_1123.fullmatch(part) for part in name.split("."))


def is_label_value(value: str) -> bool:
    """Returns whether a label may have this value; the empty one is valid."""
    return value == "" or (len(value) <= LABEL_LENGTH and _QUALIFIED.fullmatch(value) is not None)


def is_label_key(key: str) -> bool:
    """Returns whether a label or an annotation may have this key: `name` or `prefix.example/name`."""
    prefix, slash, name = key.rpartition("/")
    if slash and not is_dns_subdomain(prefix):
        return False
    return len(name) <= LABEL_LENGTH and _QUALIFIED.fullmatch(name) is not None


def is_env_name(name: str) -> bool:
    """Returns whether Kubernetes 1.33+ accepts it as an environment variable's name: printable ASCII without
    "=".
    """
    return _ENV_NAME.fullmatch(name) is not None


def is_quantity(text: str) -> bool:
    """Returns whether it is a Kubernetes quantity that is not negative: `500m`, `2Gi`, `1e3`, `4`. The number
    of digits is limited: greater values exceed 2^63, which Kubernetes uses instead, and are slow to compute
    with.
    """
    return len(text) <= _QUANTITY_LENGTH and _QUANTITY.fullmatch(text) is not None
