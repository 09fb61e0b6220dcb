"""A run on a real API server, from its first pod to its end, while the test plays the kubelet."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.base import EVERYONE, Selection
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.backends.kubernetes.run_end.enforcement import CleanUpSettings
from launcher.errors import ConflictError, NotFoundError
from launcher.status import Phase, RunStatus, latest
from tests.api.kubelet import Kubelet, bind, node, registered
from tests.api.plain_requests import Api, wait_for
from tests.api.runs import RUN, Follower, plan, role_messages, start_all, task
from worker.contract.records import Event, Progress, Record


def quiet() -> bool:
    """Returns whether all threads of the backend have ended."""
    return not [thread for thread in threading.enumerate() if thread.name.startswith(("watch-", "log-"))]


def test_a_run_to_its_success(follower: Follower, kubelet: Kubelet) -> None:
    assert follower.until(lambda status: len(status.tasks) == 5).phase is Phase.PENDING
    start_all(kubelet)
    status = follower.until(lambda status: all(role.ready == role.desired for role in status.roles))
    assert status.phase is Phase.RUNNING
    assert [role.role for role in status.roles] == ["chief", "worker", "ps", "evaluator"]
    for pod in kubelet.pods():
        kubelet.end(pod, 0)
    end = follower.rest()
    assert (end.phase, end.ended) == (Phase.SUCCEEDED, True)
    assert [role.succeeded for role in end.roles] == [1, 2, 1, 1]
    assert end.started is not None
    assert end.finished is not None
    assert follower.notices == []
    assert wait_for(quiet)


def test_a_task_that_fails_is_tried_again(follower: Follower, kubelet: Kubelet) -> None:
    start_all(kubelet)
    kubelet.end(kubelet.pods("worker")[1], 1)
    status = follower.until(lambda status: any(role.restarts for role in status.roles))
    worker = task(status, "mnist-worker-1")
    assert (worker.restarts, worker.phase) == (1, Phase.PENDING)
    assert task(status, "mnist-worker-0").restarts == 0
    kubelet.start("worker")
    assert follower.until(lambda status: status.roles[1].ready == 2).phase is Phase.RUNNING


def test_a_wrong_program_fails_the_run_at_once_and_stops_the_rest(
    follower: Follower, kubelet: Kubelet
) -> None:
    start_all(kubelet)
    kubelet.end(kubelet.pods("chief")[0], 70)
    end = follower.rest()
    assert (end.phase, end.ended, end.primary.failed) == (Phase.FAILED, True, 1)
    assert end.reason == "PodFailurePolicy"
    assert "exit code 70" in end.message
    assert [failure.name for failure in end.failures] == ["mnist-chief-0"]
    assert role_messages(end)["worker"] == "RunFailed: Stopped, since mnist-chief has failed"
    assert follower.notices == [
        "mnist-worker, mnist-ps, mnist-evaluator did not end within 0.5 s of mnist-chief: stopped"
    ]
    assert [pod["spec"]["hostname"] for pod in kubelet.pods()] == ["mnist-chief-0"]


def test_a_run_without_a_watcher_fails_by_itself(
    backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    backend.submit(plan(tmp_path, kubelet.namespace, "spec.runPolicy.backoffLimit=0"), detach=True)
    kubelet.end(kubelet.start("chief")[0], 1)
    assert wait_for(lambda: backend.status(RUN, kubelet.namespace).phase is Phase.FAILED)
    status = backend.status(RUN, kubelet.namespace)
    assert (status.reason, status.ended) == ("MaxFailedIndexesExceeded", False)


def test_tasks_that_cannot_be_stopped_do_not_hold_us_up(api: Api, kubelet: Kubelet, tmp_path: Path) -> None:
    """A pod on a node that does not answer stays, and so does its Job."""
    settings = CleanUpSettings(peers_seconds=0.5, gone_seconds=1.0)
    backend = KubernetesBackend(str(api.kubeconfig), settings=settings)
    backend.submit(plan(tmp_path, kubelet.namespace), detach=True)
    follower = Follower(backend.follow(RUN, kubelet.namespace))
    (ps,) = kubelet.pending("ps")
    with node(api, tmp_path, kubelet.namespace):
        bind(api, ps, kubelet.namespace)
        start_all(kubelet)
        for role in ("worker", "evaluator"):
            for pod in kubelet.pods(role):
                kubelet.end(pod, 0)
        follower.until(lambda status: [role.active for role in status.roles] == [1, 0, 1, 0])
        kubelet.end(kubelet.pods("chief")[0], 0)
        end = follower.rest()
    assert (end.phase, end.ended) == (Phase.SUCCEEDED, True)
    assert follower.notices == [
        "mnist-ps did not end within 0.5 s of mnist-chief: stopped",
        "mnist-ps was stopped and does not end; its nodes may not answer",
    ]


def test_tasks_that_do_not_leave_are_stopped(follower: Follower, kubelet: Kubelet) -> None:
    start_all(kubelet)
    kubelet.end(kubelet.pods("evaluator")[0], 0)
    kubelet.end(kubelet.pods("chief")[0], 0)
    end = follower.rest()
    assert (end.phase, end.ended) == (Phase.SUCCEEDED, True)
    words = "RunEnded: Stopped: still running 1 s after mnist-chief had succeeded"
    messages = role_messages(end)
    assert (messages["worker"], messages["ps"]) == (words, words)
    assert follower.notices == ["mnist-worker, mnist-ps did not end within 1 s of mnist-chief: stopped"]
    assert end.failures == ()


def test_suspended_and_resumed(
    backend: KubernetesBackend, follower: Follower, kubelet: Kubelet, tmp_path: Path
) -> None:
    start_all(kubelet)
    follower.until(lambda status: status.phase is Phase.RUNNING)
    backend.suspend(RUN, kubelet.namespace)
    status = follower.until(
        lambda status: status.phase is Phase.SUSPENDED and all(task.deleted for task in status.tasks)
    )
    assert not status.ended
    assert kubelet.pods() == []
    message = backend.submit(plan(tmp_path, kubelet.namespace), detach=True)
    assert "is what was submitted" in message
    assert "it is suspended; resume it with: python -m launcher resume mnist -n " in message
    with pytest.raises(ConflictError, match="run mnist is suspended"):
        backend.stop(RUN, kubelet.namespace)
    backend.resume(RUN, kubelet.namespace)
    start_all(kubelet)
    status = follower.until(lambda status: status.phase is Phase.RUNNING)
    assert [role.restarts for role in status.roles] == [0, 0, 0, 0]


def test_a_run_that_has_ended_is_neither_suspended_nor_resumed(
    backend: KubernetesBackend, follower: Follower, kubelet: Kubelet
) -> None:
    kubelet.end(kubelet.start("chief")[0], 70)
    follower.rest()
    with pytest.raises(ConflictError, match="has ended, so it cannot be suspended"):
        backend.suspend(RUN, kubelet.namespace)
    with pytest.raises(ConflictError, match="has ended, so it cannot be resumed"):
        backend.resume(RUN, kubelet.namespace)


@pytest.mark.parametrize("at_once", [False, True])
def test_stopped(backend: KubernetesBackend, follower: Follower, kubelet: Kubelet, at_once: bool) -> None:
    start_all(kubelet)
    follower.until(lambda status: status.phase is Phase.RUNNING)
    backend.stop(RUN, kubelet.namespace, at_once=at_once)
    end = follower.rest()
    assert (end.phase, end.ended, end.reason) == (Phase.FAILED, True, "Stopped")
    assert end.message == "The run was stopped: interrupted"
    assert end.failures == ()


def test_a_run_that_is_deleted_under_our_eyes(
    backend: KubernetesBackend, follower: Follower, kubelet: Kubelet
) -> None:
    follower.until(lambda status: len(status.tasks) == 5)
    backend.delete(RUN, kubelet.namespace)
    with pytest.raises(NotFoundError, match="run mnist was deleted"):
        follower.rest()
    assert wait_for(quiet)


def test_a_run_that_goes_with_its_namespace_says_so(
    api: Api, backend: KubernetesBackend, follower: Follower, kubelet: Kubelet
) -> None:
    follower.until(lambda status: len(status.tasks) == 5)
    assert api.request("DELETE", f"api/v1/namespaces/{kubelet.namespace}").status == 200
    backend.delete(RUN, kubelet.namespace)
    try:
        words = follower.rest().message
    except NotFoundError as error:
        words = error.message
    space = f"namespace {kubelet.namespace}"
    assert words in (
        f"run mnist was deleted with its {space}",
        f"{space} is being deleted, and the run with it",
    )


def test_a_run_that_is_cleaned_up_at_its_end(
    backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    planned = plan(tmp_path, kubelet.namespace, "spec.runPolicy.ttlSecondsAfterFinished=0")
    backend.submit(planned, detach=True)
    follower = Follower(backend.follow(RUN, kubelet.namespace))
    start_all(kubelet)
    follower.until(lambda status: status.phase is Phase.RUNNING)
    kubelet.end(kubelet.pods("chief")[0], 0)
    end = follower.rest()
    assert (end.phase, end.ended) == (Phase.SUCCEEDED, True)


def test_the_caller_may_leave_at_any_time(
    backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    backend.submit(plan(tmp_path, kubelet.namespace), detach=True)
    for update in backend.follow(RUN, kubelet.namespace):
        assert update.status.run == RUN
        break
    assert wait_for(quiet, 5)


def unschedulable(message: str) -> dict[str, object]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"conditions": [condition]}


def test_why_a_task_is_not_placed(follower: Follower, kubelet: Kubelet) -> None:
    words = "0/3 nodes are available: 3 Insufficient cpu."
    for pod in kubelet.pending("worker", 2):
        kubelet.set(pod, "Pending", None, **unschedulable(words))
    status = follower.until(lambda status: task_reason(status, "mnist-worker-1"))
    worker = task(status, "mnist-worker-1")
    message = f"{words.rstrip('.')}; ask for less cpu in resources, or wait until a node has as much free"
    assert (worker.reason, worker.message) == ("Unschedulable", message)
    status = follower.until(lambda status: "2 of 2" in status.message)
    assert role_messages(status) == {"worker": f"Unschedulable: 2 of 2 tasks: {message}"}


def task_reason(status: RunStatus, name: str) -> str:
    return next((each.reason for each in status.tasks if each.name == name), "")


def test_why_an_image_is_not_there(follower: Follower, kubelet: Kubelet) -> None:
    (chief,) = kubelet.pending("chief")
    words = 'Back-off pulling image "tf-launcher-worker:dev"'
    kubelet.set(chief, "Pending", {"waiting": {"reason": "ImagePullBackOff", "message": words}})
    status = follower.until(lambda status: task_reason(status, "mnist-chief-0"))
    message = f"{words}; mend the image's name, or name a Secret for the registry in imagePullSecrets"
    assert role_messages(status) == {"chief": f"ImagePullBackOff: {message}"}
    assert (status.reason, status.message) == ("ImagePullBackOff", message)
    kubelet.start("chief")
    assert role_messages(follower.until(lambda status: status.phase is Phase.RUNNING)) == {}


def test_why_a_pod_is_not_made(
    api: Api, backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    quota = {"metadata": {"name": "two-pods"}, "spec": {"hard": {"pods": "2"}}}
    path = f"api/v1/namespaces/{kubelet.namespace}/resourcequotas"
    assert api.request("POST", path, quota).status == 201
    assert wait_for(lambda: "hard" in api.request("GET", f"{path}/two-pods").body.get("status", {}))
    backend.submit(plan(tmp_path, kubelet.namespace), detach=True)
    follower = Follower(backend.follow(RUN, kubelet.namespace))
    status = follower.until(lambda status: role_messages(status))
    (words,) = list(role_messages(status).values())[:1]
    assert words.startswith("FailedCreate: exceeded quota: two-pods, ")
    # `status` shows the same.
    assert "exceeded quota" in backend.status(RUN, kubelet.namespace).message


def test_why_a_volume_is_not_mounted(api: Api, follower: Follower, kubelet: Kubelet) -> None:
    (chief,) = kubelet.pending("chief")
    kubelet.set(chief, "Pending", {"waiting": {"reason": "ContainerCreating"}})
    metadata = chief["metadata"]
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "mount", "namespace": kubelet.namespace},
        "involvedObject": {"kind": "Pod", "uid": metadata["uid"], "name": metadata["name"]}
        | {"namespace": kubelet.namespace},
        "type": "Warning",
        "reason": "FailedMount",
        "message": 'configmap "settings" not found',
    }
    assert api.create(event, kubelet.namespace).status == 201
    status = follower.until(lambda status: role_messages(status))
    words = role_messages(status)["chief"]
    assert words.startswith('FailedMount: configmap "settings" not found; make the configmap settings')


def test_why_a_task_was_killed(follower: Follower, kubelet: Kubelet) -> None:
    start_all(kubelet)
    one, other = kubelet.pods("worker")
    kubelet.end(one, 137, "OOMKilled")
    kubelet.end(
        other,
        137,
        reason="Error",
        conditions=[
            {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "PreemptionByScheduler",
                "message": "preempted to make room",
            }
        ],
    )
    follower.until(lambda status: status.roles[1].restarts == 2)
    assert first_end(follower, "mnist-worker-0") == ("OOMKilled", "out of memory")
    assert first_end(follower, "mnist-worker-1") == ("PreemptionByScheduler", "preempted to make room")


def first_end(follower: Follower, name: str) -> tuple[str, str]:
    return next(
        (each.reason, each.message)
        for status in follower.seen
        for each in status.tasks
        if each.name == name and each.phase is Phase.FAILED
    )


def record(name: str, event: str, **fields: object) -> str:
    return Record(event, name, 1.0, fields).line()


STEP: dict[str, Any] = {
    "epoch": 1,
    "epochs": 2,
    "step": 5,
    "steps": 10,
    "steps_per_second": 2.5,
    "loss": 0.5,
    "metrics": {},
    "epoch_end": False,
}
"""The fields of a progress record."""


def test_logs_that_cannot_be_read(api: Api, follower: Follower, kubelet: Kubelet) -> None:
    space = kubelet.namespace
    with registered(api, space, port=1):
        for pod in kubelet.pending_all(5):
            bind(api, pod, space)
        start_all(kubelet)
        follower.until(lambda _: follower.notices)
        for pod in kubelet.pods():
            kubelet.end(pod, 0)
        assert follower.rest().phase is Phase.SUCCEEDED
        [notice] = [text for text in follower.notices if "cannot be read" in text]
        assert notice.startswith(("the log of chief 0 cannot be read: ", "the log of evaluator 0 cannot"))
        assert "connection refused" in notice


def test_a_restart_in_a_pod_whose_log_is_not_followed_is_a_line_once(
    api: Api, follower: Follower, kubelet: Kubelet, tmp_path: Path
) -> None:
    space = kubelet.namespace
    with node(api, tmp_path, space) as served:
        for pod in kubelet.pending_all(5):
            bind(api, pod, space)
            if pod["spec"]["hostname"] == "mnist-worker-1":
                restarted = record("mnist-worker-1", Event.RESTARTED, restart=1, exit_code=137)
                served.write(pod["metadata"]["name"], restarted, restarted)
        start_all(kubelet)
        follower.until(lambda _: any("restarted" in text for text in follower.texts))
        follower.until(lambda _: True)
        assert sum("restarted" in text for text in follower.texts) == 1


def test_logs_and_what_they_tell(
    api: Api, backend: KubernetesBackend, follower: Follower, kubelet: Kubelet, tmp_path: Path
) -> None:
    space = kubelet.namespace
    with node(api, tmp_path, space) as served:
        pods = {pod["spec"]["hostname"]: pod for pod in kubelet.pending_all(5)}
        names = {host: pod["metadata"]["name"] for host, pod in pods.items()}
        for host, pod in pods.items():
            bind(api, pod, space)
            served.write(names[host], f"{host} begins")
        served.write(names["mnist-chief-0"], record("mnist-chief-0", Event.PROGRESS, **STEP))
        start_all(kubelet)

        status = follower.until(lambda status: latest(status.records, Progress))
        assert latest(status.records, Progress) == Progress(**STEP)
        assert status.records["mnist-chief-0"][Event.PROGRESS].fields == STEP
        # `status` has the same records.
        assert backend.status(RUN, space).records == status.records

        lines = list(backend.logs(RUN, space, EVERYONE, follow=False))
        assert [(line.role, line.index) for line in lines] == [
            ("chief", 0),
            ("chief", 0),
            ("worker", 0),
            ("worker", 1),
            ("ps", 0),
            ("evaluator", 0),
        ]
        assert [
            line.text for line in backend.logs(RUN, space, Selection(("worker",), (1,)), follow=False)
        ] == ["mnist-worker-1 begins"]

        failed = record("mnist-worker-1", Event.FAILED, message="no", traceback="", exit_code=70)
        served.write(names["mnist-worker-1"], "wrong", failed)
        served.end(names["mnist-worker-1"])
        kubelet.end(pods["mnist-worker-1"], 70)
        follower.until(lambda status: "mnist-worker-1" in status.records)
        # Only the needed logs were read: those of the chief, the evaluator and the failed task.
        assert not [text for text in follower.texts if text.startswith("mnist-ps-0")]

        followed = backend.logs(RUN, space, Selection(("chief",)), follow=True)
        texts = [next(followed).text for _ in range(2)]
        served.write(names["mnist-chief-0"], "chief ends")
        texts.append(next(followed).text)
        assert texts[0::2] == ["mnist-chief-0 begins", "chief ends"]
        for host in ("mnist-chief-0", "mnist-evaluator-0"):
            served.write(names[host], "the last word")
            served.end(names[host])
            kubelet.end(pods[host], 0)
        kubelet.end(pods["mnist-ps-0"], 0)
        kubelet.end(pods["mnist-worker-0"], 0)
        assert [line.text for line in followed] == ["the last word"]
        assert follower.rest().phase is Phase.SUCCEEDED
        assert follower.texts.count("chief ends") == 1
        assert follower.texts.count("the last word") == 2
