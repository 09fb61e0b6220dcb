"""How the Job controller ends a run after a task has failed, and which failures do not end it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launcher.plan import rendering, topology
from launcher.validation import loader
from tests.api.kubelet import Kubelet
from tests.api.plain_requests import Api, wait_for

PARAMETER_SERVER = "strategy: ParameterServer\n  worker: {replicas: 2}\n  ps: {replicas: 2}"
COLLECTIVE = "strategy: MultiWorkerMirrored\n  worker: {replicas: 3}"
DISRUPTION = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}


def submit(api: Api, namespace: str, tmp_path: Path, roles: str, *overrides: str) -> Kubelet:
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "apiVersion: launcher/v1alpha1\nkind: TrainingCluster\nmetadata: {name: run}\n"
        f"spec:\n  program: {{entrypoint: a:B}}\n  {roles}\n"
    )
    policy = "spec.runPolicy.backoffLimit=0"
    (loaded,) = loader.load(str(path), [f"metadata.namespace={namespace}", policy, *overrides])
    for item in rendering.render(topology.build(loaded.cluster)):
        made = api.create(item, namespace)
        assert made.status == 201, made.body
    return Kubelet(api, namespace)


def job(api: Api, namespace: str, role: str) -> dict[str, Any]:
    answer = api.request("GET", f"apis/batch/v1/namespaces/{namespace}/jobs/run-{role}")
    assert answer.status == 200, answer.body
    return answer.body


def end_of(api: Api, namespace: str, role: str) -> str:
    """Waits for the Job's end. Returns `Complete`, or `Failed` with its reason."""

    def found() -> str:
        for condition in job(api, namespace, role)["status"].get("conditions", ()):
            if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
                reason = condition.get("reason", "")
                return "Complete" if condition["type"] == "Complete" else f"Failed: {reason}"
        return ""

    end: str = wait_for(found)
    return end


@pytest.mark.parametrize("exit_code", [70, 75], ids=["for good", "too often"])
def test_a_worker_of_a_coordinator_fails_alone(
    api: Api, namespace: str, tmp_path: Path, exit_code: int
) -> None:
    # Exit code 70 fails it at the first of four tries; other codes fail it when it has only one try.
    limit = f"spec.runPolicy.backoffLimit={3 if exit_code == 70 else 0}"
    kubelet = submit(api, namespace, tmp_path, PARAMETER_SERVER, limit)
    chief = kubelet.start("chief")[0]
    servers = kubelet.start("ps", 2)
    one, other = kubelet.start("worker", 2)
    kubelet.end(one, exit_code)
    assert wait_for(lambda: job(api, namespace, "worker")["status"].get("failedIndexes") == "0")
    assert [
        pod["metadata"]["name"] for pod in kubelet.pods("worker") if pod["status"]["phase"] == "Running"
    ] == [other["metadata"]["name"]]
    for pod in (chief, *servers, other):
        kubelet.end(pod, 0)
    assert end_of(api, namespace, "chief") == "Complete"
    assert end_of(api, namespace, "ps") == "Complete"
    assert end_of(api, namespace, "worker") == "Failed: FailedIndexes"


@pytest.mark.parametrize(
    ("exit_code", "reason"), [(70, "PodFailurePolicy"), (75, "MaxFailedIndexesExceeded")]
)
def test_a_collectives_worker_takes_the_run_along(
    api: Api, namespace: str, tmp_path: Path, exit_code: int, reason: str
) -> None:
    kubelet = submit(api, namespace, tmp_path, COLLECTIVE)
    kubelet.end(kubelet.start("worker", 3)[1], exit_code)
    assert end_of(api, namespace, "worker") == f"Failed: {reason}"


def test_a_parameter_server_that_fails_fails_its_job(api: Api, namespace: str, tmp_path: Path) -> None:
    kubelet = submit(api, namespace, tmp_path, PARAMETER_SERVER)
    kubelet.end(kubelet.start("ps", 2)[0], 75)
    assert end_of(api, namespace, "ps") == "Failed: MaxFailedIndexesExceeded"


@pytest.mark.parametrize("role", ["chief", "worker"])
def test_a_disruption_is_not_counted(api: Api, namespace: str, tmp_path: Path, role: str) -> None:
    kubelet = submit(api, namespace, tmp_path, PARAMETER_SERVER)
    count = 1 if role == "chief" else 2
    first = kubelet.start(role, count)[0]
    kubelet.end(first, 143, conditions=[DISRUPTION])
    (again,) = kubelet.pending(role)
    assert again["metadata"]["uid"] != first["metadata"]["uid"]
    assert again["spec"]["hostname"] == first["spec"]["hostname"]
    status = job(api, namespace, role)["status"]
    assert "conditions" not in status
    assert status.get("failedIndexes", "") == ""


def test_the_deadline_is_the_primarys(api: Api, namespace: str, tmp_path: Path) -> None:
    kubelet = submit(api, namespace, tmp_path, PARAMETER_SERVER, "spec.runPolicy.activeDeadlineSeconds=1")
    kubelet.start("ps", 2)
    assert end_of(api, namespace, "chief") == "Failed: DeadlineExceeded"
    assert "conditions" not in job(api, namespace, "ps")["status"]
