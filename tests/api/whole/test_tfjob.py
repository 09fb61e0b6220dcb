"""A TFJob on a real API server with its Job controller; the test plays the kubelet."""

from __future__ import annotations

import time
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher import plan_of_file
from launcher.backends.base import Plan
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.status import Phase, RunStatus
from launcher.validation import loader
from tests.api.kubelet import Kubelet
from tests.api.plain_requests import Api, wait_for
from tests.api.runs import SETTINGS, Follower, role_messages, task

RUN = "click-rate"


def planned(kubelet: Kubelet, directory: Path, replicas: dict[str, Any], **spec: Any) -> Plan:
    """A TFJob with these replicas, each a count or its own fields."""
    container = {"name": "tensorflow", "image": "example.com/a:1"}
    specs: dict[str, Any] = {}
    for name, given in replicas.items():
        replica_fields = {"replicas": given} if isinstance(given, int) else given
        specs[name] = {"template": {"spec": {"containers": [container]}}, **replica_fields}
    document = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": RUN, "namespace": kubelet.namespace},
        "spec": {"tfReplicaSpecs": specs, **spec},
    }
    path = directory / "tfjob.yaml"
    path.write_text(yaml.safe_dump(document))
    (loaded,) = loader.load(str(path))
    return plan_of_file.plan(loaded, uuid.uuid4().hex)


def submitted(
    backend: KubernetesBackend, kubelet: Kubelet, directory: Path, replicas: dict[str, Any], **spec: Any
) -> Follower:
    """Submits it and waits until it runs."""
    backend.submit(planned(kubelet, directory, replicas, **spec), detach=True)
    return Follower(backend.follow(RUN, kubelet.namespace))


def running(kubelet: Kubelet) -> list[str]:
    return [
        pod["spec"]["hostname"].removeprefix(f"{RUN}-")
        for pod in kubelet.pods()
        if pod["status"]["phase"] == "Running"
    ]


def reasons(status: RunStatus) -> dict[str, str]:
    return {role.role: role.reason for role in status.roles}


def policy(name: str, replicas: int = 1) -> dict[str, Any]:
    return {"replicas": replicas, "restartPolicy": name}


# ---- success


@pytest.mark.parametrize("clean", ["Running", "All", None])
def test_the_clean_pod_policy(
    backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path, clean: str | None
) -> None:
    """The images never end by themselves. The operator does not stop them without a policy."""
    follower = submitted(
        backend,
        kubelet,
        tmp_path,
        {"Chief": 1, "Worker": 2, "PS": 1, "Evaluator": 1},
        runPolicy={"cleanPodPolicy": clean},
    )
    for role, count in (("chief", 1), ("worker", 2), ("ps", 1), ("evaluator", 1)):
        kubelet.start(role, count)
    kubelet.end(kubelet.pods("chief")[0], 0)
    end = follower.rest()
    backend.clean(RUN, kubelet.namespace)
    assert (end.phase, end.ended) == (Phase.SUCCEEDED, True)
    left = [pod["spec"]["hostname"].removeprefix(f"{RUN}-") for pod in kubelet.pods()]
    others = ["evaluator-0", "ps-0", "worker-0", "worker-1"]
    if clean is None:
        assert left == ["chief-0", *others]
        assert running(kubelet) == others
    else:
        assert running(kubelet) == []
        assert set(reasons(end).values()) == {"CompletionsReached", "RunEnded"}
        assert wait_for(lambda: len(kubelet.pods()) == (0 if clean == "All" else 1))


def test_worker_0_decides(backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path) -> None:
    follower = submitted(backend, kubelet, tmp_path, {"Worker": 3, "PS": 1})
    first, second, _ = kubelet.start("worker", 3)
    kubelet.start("ps")
    kubelet.end(second, 0)
    assert follower.until(lambda status: status.roles[0].succeeded == 1).phase is Phase.RUNNING
    kubelet.end(first, 0)
    end = follower.rest()
    assert end.phase is Phase.SUCCEEDED
    assert reasons(end)["worker"] == "SuccessPolicy"
    # The TFJob has no policy for cleaning up.
    assert running(kubelet) == ["ps-0"]


def test_all_workers_decide(backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path) -> None:
    follower = submitted(backend, kubelet, tmp_path, {"Worker": 2}, successPolicy="AllWorkers")
    first, second = kubelet.start("worker", 2)
    kubelet.end(first, 0)
    assert follower.until(lambda status: status.roles[0].succeeded == 1).phase is Phase.RUNNING
    kubelet.end(second, 0)
    assert follower.rest().phase is Phase.SUCCEEDED


# ---- failure


@pytest.mark.parametrize("kind", ["PS", "Worker", "Evaluator"])
def test_any_task_that_fails_fails_the_run(
    backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path, kind: str
) -> None:
    clean = {"cleanPodPolicy": "Running"}
    replicas: dict[str, Any] = {"Chief": 1, kind: policy("Never")}
    follower = submitted(backend, kubelet, tmp_path, replicas, runPolicy=clean)
    kubelet.start("chief")
    kubelet.end(kubelet.start(kind.lower())[0], 1)
    end = follower.rest()
    name = f"{RUN}-{kind.lower()}"
    why = f"{name} has failed ({name}-0 ended with exit code 1), and the run cannot go on without it"
    assert (end.phase, end.message) == (Phase.FAILED, f"Stopped, since {why}")
    assert running(kubelet) == []


@pytest.mark.parametrize("kind", ["OnFailure", "Always"])
def test_a_parameter_server_is_started_again(
    backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path, kind: str
) -> None:
    follower = submitted(backend, kubelet, tmp_path, {"Chief": 1, "PS": policy(kind, 2)})
    kubelet.start("chief")
    kubelet.end(kubelet.start("ps", 2)[0], 1)
    (again,) = kubelet.pending("ps")
    assert again["spec"]["hostname"] == f"{RUN}-ps-0"
    kubelet.start("ps")
    status = follower.until(lambda status: task(status, f"{RUN}-ps-0").restarts == 1)
    assert status.phase is Phase.RUNNING
    kubelet.end(kubelet.pods("chief")[0], 0)
    assert follower.rest().phase is Phase.SUCCEEDED


def test_retries_come_to_an_end(backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path) -> None:
    follower = submitted(
        backend, kubelet, tmp_path, {"Worker": policy("OnFailure")}, runPolicy={"backoffLimit": 1}
    )
    kubelet.end(kubelet.start("worker")[0], 1)
    kubelet.end(kubelet.start("worker")[0], 1)
    end = follower.rest()
    assert (end.phase, reasons(end)) == (Phase.FAILED, {"worker": "BackoffLimitExceeded"})


def test_an_exit_code_says_whether_to_try_again(
    backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    follower = submitted(backend, kubelet, tmp_path, {"Worker": policy("ExitCode", 2)})
    first, _ = kubelet.start("worker", 2)
    for code in (255, 128):
        kubelet.end(first, code)
        (first,) = kubelet.start("worker")
        assert first["spec"]["hostname"] == f"{RUN}-worker-0"
    kubelet.end(first, 127)
    end = follower.rest()
    assert (end.phase, reasons(end)) == (Phase.FAILED, {"worker": "PodFailurePolicy"})
    assert task(end, f"{RUN}-worker-0").restarts == 2


def test_dynamic_workers_may_be_lost(backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path) -> None:
    replicas: dict[str, Any] = {"Chief": 1, "Worker": policy("Never", 2), "PS": 1}
    follower = submitted(backend, kubelet, tmp_path, replicas, enableDynamicWorker=True)
    kubelet.start("chief")
    kubelet.start("ps")
    for pod in kubelet.start("worker", 2):
        kubelet.end(pod, 1)
    follower.until(lambda status: status.roles[1].phase is Phase.FAILED)
    # Longer than the time for a primary to fail of the same cause.
    until = time.monotonic() + 3 * SETTINGS.failed_seconds
    assert follower.until(lambda _: time.monotonic() > until).phase is Phase.RUNNING
    kubelet.end(kubelet.pods("chief")[0], 0)
    assert follower.rest().phase is Phase.SUCCEEDED


# ---- the clock


def test_the_deadline_ends_every_task_with_nobody_watching(
    api: Api, backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    follower = submitted(
        backend, kubelet, tmp_path, {"Chief": 1, "PS": 2}, runPolicy={"activeDeadlineSeconds": 3}
    )
    kubelet.start("chief")
    kubelet.start("ps", 2)
    assert wait_for(lambda: kubelet.pods() == [])
    end = follower.rest()
    assert (end.phase, reasons(end)) == (
        Phase.FAILED,
        {"chief": "DeadlineExceeded", "ps": "DeadlineExceeded"},
    )


def test_nothing_is_left_when_its_time_to_live_is_over(
    api: Api, backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    submitted(backend, kubelet, tmp_path, {"Chief": 1, "PS": 1}, runPolicy={"ttlSecondsAfterFinished": 0})
    kubelet.start("ps")
    kubelet.end(kubelet.start("chief")[0], 0)
    for kind in ("Job", "Pod", "Service", "ConfigMap"):
        assert wait_for(partial(is_gone, api, kubelet.namespace, kind))


def is_gone(api: Api, namespace: str, kind: str) -> bool:
    labels = [item["metadata"].get("labels") or {} for item in api.list(kind, namespace)]
    return all(item_labels.get("tf-launcher.dev/run") != RUN for item_labels in labels)


def test_a_suspended_job_waits(backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path) -> None:
    follower = submitted(backend, kubelet, tmp_path, {"Chief": 1, "Worker": 1}, runPolicy={"suspend": True})
    follower.until(lambda status: status.phase is Phase.SUSPENDED)
    assert kubelet.pods() == []
    backend.resume(RUN, kubelet.namespace)
    kubelet.start("worker")
    kubelet.end(kubelet.start("chief")[0], 0)
    end = follower.rest()
    assert end.phase is Phase.SUCCEEDED
    assert role_messages(end)["chief"].startswith("CompletionsReached")


def test_who_leaves_it_alone_is_told(backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path) -> None:
    """No controller in the cluster knows that the servers are no longer needed."""
    message = backend.submit(
        planned(kubelet, tmp_path, {"Chief": 1, "PS": 1}, runPolicy={"cleanPodPolicy": "All"}), detach=True
    )
    assert f"note: {RUN}-ps may not end by themselves: `python -m launcher wait {RUN} -n" in message
    backend.delete(RUN, kubelet.namespace)
    assert "may not end" not in backend.submit(planned(kubelet, tmp_path, {"Chief": 1, "PS": 1}), detach=True)
