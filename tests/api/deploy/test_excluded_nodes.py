"""Nodes that a precheck found far off, at the next start of the run: on a real API server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.base import Plan
from launcher.backends.kubernetes.backend import KubernetesBackend
from tests.api.kubelet import Kubelet, bind, node
from tests.api.plain_requests import Api, wait_for
from tests.api.runs import RUN, backend_for, plan, start_all
from worker.contract.records import Event, Prechecked, Record

EXCLUDED = {"key": "kubernetes.io/hostname", "operator": "NotIn"}


def planned(directory: Path, namespace: str, *overrides: str) -> Plan:
    return plan(directory, namespace, "spec.precheck={exclude: true}", *overrides)


@contextmanager
def removing(api: Api, namespace: str) -> Iterator[None]:
    """Removes pods that are deleted, as a kubelet does when their containers have ended."""
    closing = threading.Event()

    def remove() -> None:
        while not closing.wait(0.1):
            for pod in api.list("Pod", namespace):
                if "deletionTimestamp" in pod["metadata"]:
                    path = f"api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
                    api.request("DELETE", path, {"gracePeriodSeconds": 0})

    thread = threading.Thread(target=remove)
    thread.start()
    try:
        yield
    finally:
        closing.set()
        thread.join()


def run_with_a_slow_node(
    api: Api, backend: KubernetesBackend, kubelet: Kubelet, directory: Path, stack: ExitStack
) -> str:
    """Starts the run with each pod on a node of its own. Returns the node whose disk is slow."""
    stack.enter_context(removing(api, kubelet.namespace))
    backend.submit(planned(directory, kubelet.namespace), detach=True)
    slow = ""
    for number, pod in enumerate(kubelet.pending_all(5)):
        host = pod["spec"]["hostname"]
        folder = directory / host
        folder.mkdir(exist_ok=True)
        name = f"{kubelet.namespace}-{number}"
        logs = stack.enter_context(node(api, folder, name))
        bind(api, pod, name)
        rate = 4.0 if host == "mnist-worker-1" else 200.0 + number
        slow = name if host == "mnist-worker-1" else slow
        content = Prechecked(5.0, {"CPU": 90.0}, {"disk write": rate}, {}, {})
        line = Record(Event.PRECHECKED, host, 4e9, content._asdict()).line()
        logs.write(pod["metadata"]["name"], line)
        logs.end(pod["metadata"]["name"])
    start_all(kubelet)
    return slow


def affinity(api: Api, namespace: str) -> list[Any]:
    """Returns what the pods of each Job require of a node."""
    jobs = [job for job in api.list("Job", namespace) if job["metadata"]["name"].startswith(RUN)]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return [
        (job["spec"]["template"]["spec"].get("affinity") or {})
        .get("nodeAffinity", {})
        .get(required, {})
        .get("nodeSelectorTerms")
        for job in jobs
    ]


def test_a_resumed_run_leaves_a_slow_node_out(
    api: Api, backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        slow = run_with_a_slow_node(api, backend, kubelet, tmp_path, stack)
        space = kubelet.namespace
        assert affinity(api, space) == [None] * 4
        backend.suspend(RUN, space)
        assert wait_for(lambda: not api.list("Pod", space))
        note = backend.resume(RUN, space)
    assert note == f"note: left out, as far off from the others: node {slow}"
    terms = [{"matchExpressions": [EXCLUDED | {"values": [slow]}]}]
    assert affinity(api, space) == [terms] * 4
    # The file is still what was submitted.
    assert "is what was submitted" in backend.submit(planned(tmp_path, space), detach=True)


def test_a_replaced_run_leaves_a_slow_node_out_and_a_deleted_one_forgets_it(
    api: Api, backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    space = kubelet.namespace
    with ExitStack() as stack:
        slow = run_with_a_slow_node(api, backend, kubelet, tmp_path, stack)
        message = backend.submit(planned(tmp_path, space), detach=True, replace=True)
    reason = "it writes its disk at 4 MB/s, where 20"
    assert f"left out, as far off from the others: node {slow} ({reason}" in message
    terms = [{"matchExpressions": [EXCLUDED | {"values": [slow]}]}]
    assert affinity(api, space) == [terms] * 4
    # The next one has not measured it, and still leaves it out.
    assert slow in backend.submit(planned(tmp_path, space), detach=True, replace=True)
    assert affinity(api, space) == [terms] * 4
    backend.delete(RUN, space)
    assert slow not in backend.submit(planned(tmp_path, space), detach=True)
    assert affinity(api, space) == [None] * 4


def test_without_exclude_the_node_stays(
    api: Api, backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    space = kubelet.namespace
    with ExitStack() as stack:
        run_with_a_slow_node(api, backend, kubelet, tmp_path, stack)
        backend.submit(plan(tmp_path, space, "spec.precheck=true"), detach=True, replace=True)
    assert affinity(api, space) == [None] * 4


@pytest.mark.nightly
def test_a_server_that_moves_no_suspended_job(oldest_api: Api, tmp_path: Path) -> None:
    from tests.api.conftest import restricted_namespace

    backend = backend_for(oldest_api)
    with restricted_namespace(oldest_api) as space, ExitStack() as stack:
        kubelet = Kubelet(oldest_api, space)
        slow = run_with_a_slow_node(oldest_api, backend, kubelet, tmp_path, stack)
        backend.suspend(RUN, space)
        assert wait_for(lambda: not oldest_api.list("Pod", space))
        note = backend.resume(RUN, space)
        assert note.startswith(f"note: {slow} could not be left out")
        assert "--replace" in note
        assert affinity(oldest_api, space) == [None] * 4
