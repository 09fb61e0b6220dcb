"""The workers of an elastic run come and go, on a real API server and its Job controller."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.base import Selection
from launcher.backends.kubernetes.api_server.client import Client
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.backends.kubernetes.preflight import needed_rights
from launcher.cli import parser
from launcher.errors import ConflictError, NotFoundError
from launcher.object_names import job_name
from launcher.status import Phase, RunStatus
from tests.api.kubelet import Kubelet
from tests.api.plain_requests import Api, wait_for
from tests.api.runs import RUN, SETTINGS, Follower, plan, role_messages
from tests.api.users import user

ELASTIC = ("spec.worker={replicas: 3, minReplicas: 2, maxReplicas: 5}", "spec.evaluator=null")
NO_RETRIES = "spec.runPolicy.backoffLimit=0"


def submitted(backend: KubernetesBackend, kubelet: Kubelet, directory: Path, *overrides: str) -> Follower:
    """Submits an elastic run, and starts its tasks."""
    backend.submit(plan(directory, kubelet.namespace, *ELASTIC, *overrides), detach=True)
    for role, count in (("chief", 1), ("worker", 3), ("ps", 1)):
        kubelet.start(role, count)
    return Follower(backend.follow(RUN, kubelet.namespace))


def workers(status: RunStatus, role: str = "worker") -> list[int]:
    """Returns the numbers of the role's tasks that run."""
    return [task.index for task in status.tasks if task.role == role and task.phase is Phase.RUNNING]


def have(*numbers: int) -> Callable[[RunStatus], bool]:
    return lambda status: workers(status) == list(numbers)


def running(kubelet: Kubelet, role: str = "worker") -> list[int]:
    """Returns the numbers of the role's tasks whose pods run and are not being deleted."""
    pods = [pod for pod in kubelet.pods(role) if pod["status"]["phase"] == "Running"]
    return [int(pod["spec"]["hostname"].rpartition("-")[2]) for pod in pods]


def spec(api: Api, namespace: str, role: str = "worker") -> dict[str, Any]:
    """Returns the spec of the role's Job."""
    (job,) = [job for job in api.list("Job", namespace) if job["metadata"]["name"] == job_name(RUN, role)]
    job_spec: dict[str, Any] = job["spec"]
    return job_spec


def test_workers_come_and_go(api: Api, backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path) -> None:
    space = kubelet.namespace
    follower = submitted(backend, kubelet, tmp_path, NO_RETRIES)
    follower.until(have(0, 1, 2))

    assert backend.scale(RUN, space, 5) == 3
    kubelet.start("worker", 2)
    follower.until(have(0, 1, 2, 3, 4))
    assert follower.notices == []

    # One fails for good; the run goes on, and so does its Job.
    (last,) = [pod for pod in kubelet.pods("worker") if pod["spec"]["hostname"] == f"{RUN}-worker-4"]
    kubelet.end(last, 1)
    status = follower.until(lambda status: status.roles[1].failed == 1)
    assert (status.phase, status.roles[1].phase) == (Phase.RUNNING, Phase.RUNNING)

    assert backend.scale(RUN, space, 2) == 5
    assert wait_for(lambda: running(kubelet) == [0, 1]), "the controller deletes the highest"
    kubelet.finish_deleted()
    status = follower.until(lambda status: have(0, 1)(status) and len(status.tasks) == 4)
    worker = status.roles[1]
    assert (worker.phase, worker.desired, worker.restarts) == (Phase.RUNNING, 2, 0)
    assert status.all_run
    assert status.failures == ()

    # The one that had failed for good is tried again.
    assert backend.scale(RUN, space, 5) == 2
    kubelet.start("worker", 3)
    follower.until(have(0, 1, 2, 3, 4))
    with pytest.raises(NotFoundError, match="has no role, task or pod worker-5"):
        list(backend.logs(RUN, space, Selection(names=("worker-5",)), follow=False))

    message = backend.submit(plan(tmp_path, space, *ELASTIC, NO_RETRIES), detach=True)
    assert "run mnist is running already, and is what was submitted" in message
    assert (spec(api, space)["completions"], spec(api, space)["parallelism"]) == (5, 5)

    for pod in kubelet.pods("worker"):
        if pod["status"]["phase"] == "Running":
            kubelet.end(pod, 0)
    kubelet.end(kubelet.pods("ps")[0], 0)
    kubelet.end(kubelet.pods("chief")[0], 0)
    end = follower.rest()
    assert [role.phase for role in end.roles] == [Phase.SUCCEEDED] * 3, role_messages(end)
    with pytest.raises(ConflictError, match="run mnist has ended, so it cannot be scaled"):
        backend.scale(RUN, space, 3)


def test_a_run_ends_when_fewer_workers_are_left_than_it_needs(
    backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    follower = submitted(backend, kubelet, tmp_path, NO_RETRIES)
    first, second, _ = kubelet.pods("worker")
    kubelet.end(second, 1)
    status = follower.until(lambda status: status.roles[1].given_up == 1)
    assert (status.phase, follower.notices) == (Phase.RUNNING, [])
    kubelet.end(first, 1)
    follower.until(lambda _: follower.notices)
    (notice,) = follower.notices
    assert notice == (
        "1 task is left of mnist-worker, the others have failed for good "
        "(mnist-worker-0 ended with exit code 1), and the run needs 2; mnist-chief is stopped"
    )


def test_what_cannot_be(backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path) -> None:
    space = kubelet.namespace
    with pytest.raises(NotFoundError):
        backend.scale(RUN, space, 3)
    backend.submit(plan(tmp_path, space, *ELASTIC), detach=True)
    for count in (0, 1, 6):
        with pytest.raises(ConflictError, match=f"run mnist can have 2 to 5 workers, not {count}"):
            backend.scale(RUN, space, count)
    backend.suspend(RUN, space)
    with pytest.raises(ConflictError, match="run mnist is suspended, so it cannot be scaled"):
        backend.scale(RUN, space, 4)
    backend.delete(RUN, space)
    backend.submit(plan(tmp_path, space), detach=True)
    with pytest.raises(ConflictError, match="the workers of run mnist are 2 for as long as it lasts"):
        backend.scale(RUN, space, 3)


def test_data_workers_come_and_go_beside_workers_that_do_not(
    api: Api, backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    space = kubelet.namespace
    service = ("spec.dataService={workers: 2}", "spec.evaluator=null")
    backend.submit(plan(tmp_path, space, *service), detach=True)
    follower = Follower(backend.follow(RUN, space))
    for role, count in (("chief", 1), ("worker", 2), ("ps", 1), ("dispatcher", 1), ("data-worker", 2)):
        kubelet.start(role, count)

    def have_data(*numbers: int) -> Callable[[RunStatus], bool]:
        return lambda status: workers(status, "data-worker") == list(numbers)

    follower.until(have_data(0, 1))
    assert backend.scale(RUN, space, 3, "data-worker") == 2
    kubelet.start("data-worker", 1)
    follower.until(have_data(0, 1, 2))
    assert backend.scale(RUN, space, 1, "data-worker") == 3
    assert wait_for(lambda: running(kubelet, "data-worker") == [0])
    kubelet.finish_deleted()
    status = follower.until(lambda status: have_data(0)(status) and len(status.tasks) == 6)
    (data,) = [each for each in status.roles if each.role == "data-worker"]
    assert (data.phase, data.desired, data.restarts) == (Phase.RUNNING, 1, 0)
    assert follower.notices == []
    with pytest.raises(ConflictError, match="run mnist can have 1 to 16 data workers, not 17"):
        backend.scale(RUN, space, 17, "data-worker")
    with pytest.raises(ConflictError, match="the workers of run mnist are 2 for as long as it lasts"):
        backend.scale(RUN, space, 3)
    with pytest.raises(ConflictError, match="role ps cannot be scaled, only worker and data-worker"):
        backend.scale(RUN, space, 2, "ps")
    # To submit the file again changes nothing of that.
    message = backend.submit(plan(tmp_path, space, *service), detach=True)
    assert "run mnist is running already, and is what was submitted" in message
    assert spec(api, space, "data-worker")["completions"] == 1


def test_of_two_commands_at_once_the_first_wins(
    api: Api, backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = kubelet.namespace
    submitted(backend, kubelet, tmp_path)
    path = f"apis/batch/v1/namespaces/{space}/jobs/{RUN}-worker"
    merge = Client.merge
    changes: list[dict[str, Any]] = [
        {"metadata": {"annotations": {"changed": "by a controller"}}},
        {"spec": {"completions": 4, "parallelism": 4}},
    ]

    def after_another(self: Client, *arguments: Any) -> Any:
        if changes:
            answer = api.patch(path, changes.pop(0), "application/merge-patch+json")
            assert answer.status == 200, answer.body
        return merge(self, *arguments)

    monkeypatch.setattr(Client, "merge", after_another)
    with pytest.raises(ConflictError, match="scaled by somebody else meanwhile: it is to have 4 workers"):
        backend.scale(RUN, space, 5)
    assert spec(api, space)["completions"] == 4
    # Another change of the Job is no reason to give up.
    changes.append({"metadata": {"annotations": {"changed": "again"}}})
    assert backend.scale(RUN, space, 5) == 4
    assert (spec(api, space)["completions"], spec(api, space)["parallelism"]) == (5, 5)


def test_the_least_role_is_enough(
    api: Api, backend: KubernetesBackend, namespace: str, tmp_path: Path
) -> None:
    backend.submit(plan(tmp_path, namespace, *ELASTIC), detach=True)
    least = KubernetesBackend(str(user(api, namespace, needed_rights.rules(()), tmp_path)), settings=SETTINGS)
    assert least.scale(RUN, namespace, 4) == 3
    assert spec(api, namespace)["completions"] == 4


def test_the_command(
    api: Api,
    backend: KubernetesBackend,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    backend.submit(plan(tmp_path, namespace, *ELASTIC), detach=True)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = parser.main([*arguments, "-n", namespace])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    code, out, _ = run("scale", RUN, "--workers", "5")
    assert (code, out.partition(";")[0]) == (0, "run mnist is to have 5 workers, 3 before")
    code, out, _ = run("scale", RUN, "--workers", "5")
    assert (code, out.partition(";")[0]) == (0, "run mnist is to have 5 workers already")
    code, _, err = run("scale", RUN, "--workers", "6")
    assert (code, "can have 2 to 5 workers, not 6" in err) == (4, True)
    code, out, _ = run("status", RUN)
    assert "0 of 5, at least 2" in out
