"""Runs for the tests of the Kubernetes backend."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher import plan_of_file
from launcher.backends.base import Plan, Update
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.backends.kubernetes.run_end.enforcement import CleanUpSettings
from launcher.status import RunStatus, TaskStatus
from launcher.validation import loader
from tests.api.kubelet import Kubelet
from tests.api.plain_requests import Api

CLUSTER = """\
apiVersion: launcher/v1alpha1
kind: TrainingCluster
metadata:
  name: mnist
spec:
  strategy: ParameterServer
  program:
    entrypoint: mnist:Mnist
    source: mnist.py
  modelDir: /model
  worker: {replicas: 2}
  ps: {}
  evaluator: {}
"""
RUN = "mnist"
SETTINGS = CleanUpSettings(
    peers_seconds=1.0, evaluator_seconds=1.0, other_image_seconds=0.5, failed_seconds=0.5
)
OBJECTS = (
    "Job mnist-chief",
    "Job mnist-worker",
    "Job mnist-ps",
    "Job mnist-evaluator",
    "Service mnist",
    "ConfigMap mnist-config",
    "ConfigMap mnist-source",
    "NetworkPolicy mnist",
    "PersistentVolumeClaim mnist-model",
)
"""The objects of the cluster above."""


def plan(directory: Path, namespace: str, *overrides: str, program: str = "class Mnist: ...\n") -> Plan:
    """Returns the plan of the cluster above."""
    (directory / "cluster.yaml").write_text(CLUSTER)
    (directory / "mnist.py").write_text(program)
    (loaded,) = loader.load(str(directory / "cluster.yaml"), [f"metadata.namespace={namespace}", *overrides])
    return plan_of_file.plan(loaded, uuid.uuid4().hex)


def backend_for(api: Api) -> KubernetesBackend:
    """Returns a new backend with the administrator's rights and short delays at a run's end."""
    return KubernetesBackend(str(api.kubeconfig), settings=SETTINGS)


def start_all(kubelet: Kubelet) -> None:
    """Sets the five pods of the cluster above to running."""
    for role, count in (("chief", 1), ("worker", 2), ("ps", 1), ("evaluator", 1)):
        kubelet.start(role, count)


def skip_beside_a_kubelet() -> None:
    """Skips the test where the cluster has a real kubelet, beside which none can be played."""
    if "LAUNCHER_TEST_KUBECONFIG" in os.environ:
        pytest.skip("this test plays the kubelet, and the cluster of LAUNCHER_TEST_KUBECONFIG has one")


class Follower:
    """Takes updates of a run until a condition holds, and keeps the lines."""

    def __init__(self, updates: Iterator[Update]) -> None:
        self._updates = updates
        self.texts: list[str] = []
        self.notices: list[str] = []
        self.last: RunStatus | None = None
        self.seen: list[RunStatus] = []

    def until(self, condition: Callable[[RunStatus], Any]) -> RunStatus:
        """Returns the first status for which the condition holds. Fails after two minutes of updates, or at
        the end.
        """
        for _ in range(500):
            update = next(self._updates, None)
            if update is None:
                break
            self._take(update)
            if condition(update.status):
                return update.status
        pytest.fail(f"it never came to that; the last status was {self.last}")

    def rest(self) -> RunStatus:
        """Returns the last status of all."""
        for update in self._updates:
            self._take(update)
        assert self.last is not None
        return self.last

    def _take(self, update: Update) -> None:
        self.last = update.status
        self.seen.append(update.status)
        for line in update.lines:
            (self.notices if line.role == "run" else self.texts).append(line.text)


def task(status: RunStatus, name: str) -> TaskStatus:
    """Returns the task of that name."""
    return next(task for task in status.tasks if task.name == name)


def role_messages(status: RunStatus) -> dict[str, str]:
    """Returns the messages of the roles, as `reason: message`."""
    return {role.role: f"{role.reason}: {role.message}" for role in status.roles if role.message}
