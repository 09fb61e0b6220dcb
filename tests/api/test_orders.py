"""Orders to a task's supervisor, through a real API server: a port-forward, and the rights that it takes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from launcher import task_orders
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.errors import BackendError, ConflictError, NotFoundError, SpecError
from tests.api.kubelet import Kubelet, bind, node
from tests.api.plain_requests import Api
from tests.api.runs import RUN, plan
from tests.api.users import user
from tests.free_ports import free_addresses
from tests.paths import ROOT
from worker.contract.environment import Env

SUPERVISOR: Final = """
import json, pathlib, sys, time
from worker.contract import orders
from worker.process.watch import stalled
from worker.supervisor.supervisor import Limits, Work, supervise
port, task, directory = sys.argv[1:]
orders.PORT = int(port)
def train(watch):
    watch.trains(True)
    print("up", flush=True)
    while True:
        order = pathlib.Path(directory, "profile")
        if order.exists():
            number = json.loads(order.read_text())["number"]
            time.sleep(2.5)
            found = {"path": "/model/logs/x", "first": 5, "steps": 20, "tasks": [task], "problems": {}}
            watch.profiled({"number": number, **found})
        time.sleep(0.02)
supervise(Work(train), stalled("starting", 60), task, {}, Limits(), directory=directory)
"""
LEAST: Final[list[dict[str, Any]]] = [
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["get", "create"]},
]
"""As docs/watch.md gives them."""


@contextmanager
def supervisor(task: str, directory: Path) -> Iterator[int]:
    """Runs a task's supervisor as in a pod. Gives the port at which it takes orders."""
    (address,) = free_addresses(1)
    port = int(address.rpartition(":")[2])
    environment = {name: value for name, value in os.environ.items() if name != Env.LOCAL}
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(port), task, str(directory)],
        env={**environment, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "up\n"
            yield port
        finally:
            process.kill()


def test_stacks_and_a_profile_with_the_least_rights(
    api: Api, backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    namespace, name = kubelet.namespace, f"node-{kubelet.namespace}"
    backend.submit(plan(tmp_path, namespace), detach=True)
    with supervisor("mnist-chief-0", tmp_path) as port, node(api, tmp_path, name, forwards=port):
        for role, count in (("chief", 1), ("worker", 2)):
            for pod in kubelet.pending(role, count):
                bind(api, pod, name)
            kubelet.start(role, count)
        other = KubernetesBackend(str(user(api, namespace, LEAST, tmp_path)))
        (chief,) = task_orders.stacks(other, RUN, namespace, ["chief"])
        assert "in train" in chief.text
        assert (chief.task, chief.node, chief.problem) == ("chief-0", name, "")
        # All pods of this node lead to the same supervisor, as those on their host's network do.
        (worker,) = task_orders.stacks(other, RUN, namespace, ["worker-1"])
        assert worker.problem == "mnist-chief-0 answers in its place"
        profile = task_orders.profile(other, RUN, namespace, 20, 30.0)
        assert (profile.path, profile.first, profile.steps) == ("/model/logs/x", 5, 20)
        with pytest.raises(ConflictError, match=r"chief-0 of run mnist has no answer after 1 s"):
            task_orders.profile(other, RUN, namespace, 20, 1.0)
        with pytest.raises(SpecError, match="steps: expected a number from 1 to 1,000, not 1001"):
            task_orders.profile(other, RUN, namespace, 1001, 30.0)
        with pytest.raises(NotFoundError, match="no role, task or pod worker-7"):
            task_orders.stacks(other, RUN, namespace, ["worker-7"])
        with pytest.raises(ConflictError, match="no task that is meant is running"):
            task_orders.stacks(other, RUN, namespace, ["ps"])


def test_who_may_forward_no_port_is_told_and_a_pod_that_takes_no_orders_too(
    api: Api, backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    namespace, name = kubelet.namespace, f"node-{kubelet.namespace}"
    backend.submit(plan(tmp_path, namespace), detach=True)
    (address,) = free_addresses(1)
    with node(api, tmp_path, name, forwards=int(address.rpartition(":")[2])):
        (pod,) = kubelet.pending("chief")
        bind(api, pod, name)
        kubelet.start("chief")
        (chief,) = task_orders.stacks(backend, RUN, namespace, [])
        assert "chief-0 of run mnist does not answer" in chief.problem
        with pytest.raises(BackendError, match="does not answer"):
            task_orders.profile(backend, RUN, namespace, 20, 30.0)
        other = KubernetesBackend(str(user(api, namespace, LEAST[:-1], tmp_path)))
        (chief,) = task_orders.stacks(other, RUN, namespace, [])
        assert "may not create pods/portforward" in chief.problem
