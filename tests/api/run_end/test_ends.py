"""How runs end, and what is left of them, on a real API server and its Job controller."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.base import Selection
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.cli import live_view, parser
from launcher.status import Phase, RunStatus
from tests.api.kubelet import Kubelet, bind, node
from tests.api.plain_requests import Api, wait_for
from tests.api.runs import RUN, SETTINGS, Follower, plan, role_messages, start_all, task

RETRIES = "spec.runPolicy.backoffLimit=1"
NO_RETRIES = "spec.runPolicy.backoffLimit=0"
DISRUPTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "the node is drained",
}


def submitted(backend: KubernetesBackend, kubelet: Kubelet, directory: Path, *overrides: str) -> Follower:
    backend.submit(plan(directory, kubelet.namespace, *overrides), detach=True)
    return Follower(backend.follow(RUN, kubelet.namespace))


def host(kubelet: Kubelet, name: str) -> dict[str, Any]:
    """Returns the task's pod that has not ended."""

    def found() -> list[dict[str, Any]]:
        return [
            pod
            for pod in kubelet.pods()
            if pod["spec"]["hostname"] == name and pod["status"]["phase"] in ("Pending", "Running")
        ]

    (pod,) = wait_for(found)
    assert isinstance(pod, dict)
    return pod


def restarted(name: str, times: int, status: RunStatus) -> bool:
    return task(status, name).restarts == times


def pods_running(kubelet: Kubelet) -> list[str]:
    return [pod["spec"]["hostname"] for pod in kubelet.pods() if pod["status"]["phase"] == "Running"]


def test_what_is_left_is_left_alone_on_demand(
    backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    follower = submitted(backend, kubelet, tmp_path, "spec.runPolicy.cleanPolicy=None")
    start_all(kubelet)
    kubelet.end(kubelet.pods("chief")[0], 0)
    end = follower.rest()
    assert (end.phase, end.ended) == (Phase.SUCCEEDED, True)
    assert follower.notices == [
        "left running, since runPolicy.cleanPolicy is None: mnist-worker, mnist-ps, mnist-evaluator"
    ]
    assert pods_running(kubelet) == ["mnist-evaluator-0", "mnist-ps-0", "mnist-worker-0", "mnist-worker-1"]


def test_an_image_that_does_not_leave_by_itself_is_not_waited_for(
    backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    follower = submitted(backend, kubelet, tmp_path, "spec.ps.command=[python, server.py]")
    start_all(kubelet)
    for role in ("worker", "evaluator", "chief"):
        for pod in kubelet.pods(role):
            kubelet.end(pod, 0)
    end = follower.rest()
    assert (end.phase, end.ended) == (Phase.SUCCEEDED, True)
    assert follower.notices == ["mnist-ps did not end within 0.5 s of mnist-chief: stopped"]
    assert role_messages(end)["ps"].startswith("RunEnded: Stopped: still running 0.5 s after")


def test_who_follows_the_logs_stops_what_is_left_too(
    backend: KubernetesBackend, follower: Follower, kubelet: Kubelet
) -> None:
    start_all(kubelet)
    lines = backend.logs(RUN, kubelet.namespace, Selection(("evaluator",)), follow=True)
    kubelet.end(kubelet.pods("evaluator")[0], 0)
    kubelet.end(kubelet.pods("chief")[0], 0)
    assert list(lines) == []
    assert pods_running(kubelet) == []


def test_all_of_a_run_that_failed_goes_when_its_last_words_were_read(
    api: Api,
    backend: KubernetesBackend,
    kubelet: Kubelet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig))
    space = kubelet.namespace
    with node(api, tmp_path, space) as served:
        planned = plan(tmp_path, space, "spec.runPolicy.cleanPolicy=All")
        backend.submit(planned, detach=True)
        (chief,) = kubelet.pending("chief")
        bind(api, chief, space)
        served.write(chief["metadata"]["name"], "it went wrong here")
        served.end(chief["metadata"]["name"])
        kubelet.set(chief, "Running", {"running": {"startedAt": "2026-01-01T00:00:00Z"}})
        for role, count in (("worker", 2), ("ps", 1), ("evaluator", 1)):
            for pod in kubelet.start(role, count):
                kubelet.end(pod, 0)
        kubelet.end(chief, 70)
        assert parser.main(["wait", RUN, "-n", space, "--backend", "kubernetes"]) == 1
        captured = capsys.readouterr()
    assert "chief ended with exit code 70\n  The end of its log:\n  it went wrong here" in captured.out
    assert "its pods are deleted, as its cleanPolicy says" in captured.err
    assert wait_for(lambda: api.list("Pod", space) == [])
    status = backend.status(RUN, space)
    assert (status.phase, status.reason) == (Phase.FAILED, "PodFailurePolicy")


def test_a_worker_that_keeps_failing_leaves_the_run_to_the_others(
    backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    """Under ParameterServer the coordinator gives its steps to the other workers."""
    follower = submitted(backend, kubelet, tmp_path, RETRIES)
    start_all(kubelet)
    for _ in range(2):
        kubelet.end(host(kubelet, "mnist-worker-1"), 1)
    status = follower.until(lambda status: status.roles[1].failed == 2)
    assert (status.phase, status.roles[1].phase) == (Phase.RUNNING, Phase.RUNNING)
    assert not wait_for(lambda: len(kubelet.pods("worker")) > 3, seconds=1)
    for role in ("worker", "ps", "evaluator", "chief"):
        for pod in kubelet.pods(role):
            if pod["status"]["phase"] == "Running":
                kubelet.end(pod, 0)
    end = follower.rest()
    assert (end.phase, end.roles[1].phase) == (Phase.SUCCEEDED, Phase.FAILED)
    assert end.roles[1].reason == "FailedIndexes"


def test_a_worker_that_keeps_failing_takes_a_collective_along(
    backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    """Under MultiWorkerMirrored no task can train without it."""
    collective = ("spec.strategy=MultiWorkerMirrored", "spec.ps=null", "spec.evaluator=null")
    follower = submitted(backend, kubelet, tmp_path, RETRIES, *collective)
    kubelet.start("worker", 2)
    for _ in range(2):
        kubelet.end(host(kubelet, "mnist-worker-1"), 1)
    end = follower.rest()
    assert (end.phase, end.reason) == (Phase.FAILED, "MaxFailedIndexesExceeded")
    assert [failure.name for failure in end.failures] == ["mnist-worker-1"]
    assert pods_running(kubelet) == []


@pytest.mark.parametrize(("role", "count"), [("ps", 1), ("worker", 2)])
def test_a_run_that_cannot_go_on_is_ended_by_who_follows_it(
    api: Api,
    backend: KubernetesBackend,
    kubelet: Kubelet,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    role: str,
    count: int,
) -> None:
    """TensorFlow's coordinator would wait for ever."""
    with node(api, tmp_path, kubelet.namespace) as served:
        backend.submit(plan(tmp_path, kubelet.namespace, NO_RETRIES), detach=True)
        failing = kubelet.pending(role, count)
        for pod in failing:
            bind(api, pod, kubelet.namespace)
            served.write(pod["metadata"]["name"], "no space left")
            served.end(pod["metadata"]["name"])
        start_all(kubelet)
        for pod in failing:
            kubelet.end(pod, 3)
        assert live_view.watch(backend, RUN, kubelet.namespace, stop_on_interrupt=False) == 1
        printed = " ".join(capsys.readouterr().out.split())
    why = f"mnist-{role} has failed (mnist-{role}-"
    assert why in printed
    assert "and the run cannot go on without it; mnist-chief is stopped" in printed
    assert "ended with exit code 3 The end of its log: no space left" in printed
    status = backend.status(RUN, kubelet.namespace)
    assert (status.phase, status.reason) == (Phase.FAILED, "RunFailed")
    assert status.message.startswith(f"Stopped, since {why}")
    assert pods_running(kubelet) == []


def test_a_run_goes_on_without_its_evaluator(
    backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    follower = submitted(backend, kubelet, tmp_path, NO_RETRIES)
    start_all(kubelet)
    kubelet.end(kubelet.pods("evaluator")[0], 3)
    follower.until(lambda status: status.roles[3].phase is Phase.FAILED)
    # Longer than the time for a primary to fail of the same cause.
    until = time.monotonic() + 3 * SETTINGS.failed_seconds
    assert follower.until(lambda _: time.monotonic() > until).phase is Phase.RUNNING
    assert follower.notices == []


@pytest.mark.parametrize("name", ["mnist-chief-0", "mnist-worker-1", "mnist-ps-0"])
def test_a_drained_node_is_not_counted(
    backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path, name: str
) -> None:
    follower = submitted(backend, kubelet, tmp_path, NO_RETRIES)
    start_all(kubelet)
    for drained in (1, 2):
        pod = host(kubelet, name)
        kubelet.end(pod, 137, conditions=[DISRUPTED])
        status = follower.until(partial(restarted, name, drained))
        assert status.phase is not Phase.FAILED
        before = task(status, name).before
        assert before is not None
        assert before.message == "the node is drained"
        kubelet.set(host(kubelet, name), "Running", {"running": {"startedAt": "2026-01-01T00:00:05Z"}})
    for pod in kubelet.pods():
        if pod["status"]["phase"] == "Running":
            kubelet.end(pod, 0)
    assert follower.rest().phase is Phase.SUCCEEDED


def test_without_a_follower_the_time_to_live_ends_what_is_left(
    api: Api, backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    """The image is no image of the launcher's, and its servers never end."""
    backend.submit(plan(tmp_path, kubelet.namespace, "spec.runPolicy.ttlSecondsAfterFinished=1"), detach=True)
    start_all(kubelet)
    kubelet.end(kubelet.pods("chief")[0], 0)
    assert wait_for(lambda: api.list("Job", kubelet.namespace) == [])
    assert wait_for(lambda: api.list("Pod", kubelet.namespace) == [])
