"""A run's objects as a status with reasons; and the differences between two submissions."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from launcher.backends.kubernetes.api_server.api_errors import Request, refusal, unreachable
from launcher.backends.kubernetes.api_server.object_diff import altered, differences, indented, wanted
from launcher.backends.kubernetes.state.run_state import RunState, slim_event, slim_job, slim_pod
from launcher.status import Phase, RunStatus, TaskStatus

Object = dict[str, Any]


def job(role: str, desired: int = 1, **status: Any) -> Object:
    annotations = {"tf-launcher.dev/primary": "true", "tf-launcher.dev/spec": "{}"} if role == "chief" else {}
    return {
        "metadata": {
            "name": f"mnist-{role}",
            "namespace": "default",
            "uid": role,
            "labels": {"tf-launcher.dev/run": "mnist", "tf-launcher.dev/role": role},
            "annotations": annotations,
            "ownerReferences": [] if role == "chief" else [{"uid": "chief"}],
        },
        "spec": {"completions": desired, "template": {"spec": {}}},
        "status": status,
    }


def pod(role: str, index: int, *, name: str = "", second: int = 0, **status: Any) -> Object:
    container = {"name": "tensorflow", "resources": {"limits": {"memory": "2Gi"}}}
    return {
        "metadata": {
            "name": name or f"mnist-{role}-{index}-abcde",
            "uid": name or f"{role}-{index}",
            "labels": {
                "tf-launcher.dev/role": role,
                "batch.kubernetes.io/job-name": f"mnist-{role}",
                "batch.kubernetes.io/job-completion-index": str(index),
            },
            "creationTimestamp": f"2026-01-01T00:00:{second:02d}Z",
            "ownerReferences": [{"uid": role}],
        },
        "spec": {"containers": [{"name": "istio-proxy"}, container]},
        "status": {"phase": "Pending", **status},
    }


def state(**states: Any) -> Object:
    return {
        "containerStatuses": [{"name": "istio-proxy", "state": {}}, {"name": "tensorflow", "state": states}]
    }


def run_state(jobs: list[Object], pods: list[Object], *events: Object) -> RunState:
    seen = RunState("chief")
    seen.replace("Job", map(slim_job, jobs))
    seen.replace("Pod", map(slim_pod, pods))
    seen.replace("Event", map(slim_event, events))
    return seen


def status(*args: Any) -> RunStatus:
    return run_state(*args).status({})


def only_task(one: Object) -> TaskStatus:
    (task,) = status([job("chief")], [one]).tasks
    return task


@pytest.mark.parametrize(
    ("seen", "reason", "message"),
    [
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3"}
                ]
            },
            "Unschedulable",
            "0/3",
        ),
        (
            state(waiting={"reason": "ErrImagePull", "message": "no such host"}),
            "ImagePullBackOff",
            "no such host; mend the image's name, or name a Secret for the registry in imagePullSecrets",
        ),
        (state(waiting={"reason": "ContainerCreating"}), "", ""),
        (
            {
                **state(waiting={"reason": "PodInitializing"}),
                "initContainerStatuses": [
                    {
                        "name": "fetch",
                        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "again"}},
                    }
                ],
            },
            "CrashLoopBackOff",
            "fetch: again",
        ),
        (
            {"phase": "Failed", **state(terminated={"reason": "OOMKilled", "exitCode": 137})},
            "OOMKilled",
            "out of memory: its limit is 2Gi",
        ),
        (
            {
                "phase": "Failed",
                "reason": "Evicted",
                "message": "The node was low on resource: memory.",
                **state(terminated={"reason": "Error", "exitCode": 137}),
            },
            "Evicted",
            "The node was low on resource: memory.",
        ),
        (
            {"phase": "Failed", "reason": "NodeAffinity", "message": "no longer fits"},
            "NodeAffinity",
            "no longer fits",
        ),
        (
            {
                "phase": "Failed",
                **state(terminated={"reason": "StartError", "message": "exec", "exitCode": 128}),
            },
            "StartError",
            "exec",
        ),
        ({"phase": "Succeeded", **state(terminated={"reason": "Completed", "exitCode": 0})}, "Completed", ""),
    ],
    ids=lambda value: value if isinstance(value, str) and value else "seen",
)
def test_why_a_pod_is_as_it_is(seen: Object, reason: str, message: str) -> None:
    task = only_task(pod("chief", 0, **seen))
    assert (task.reason, task.message) == (reason, message)


def test_roles_in_order_and_attempts_in_order() -> None:
    """The server lists both by name, and two pods of an index may have the same second."""
    pods = [
        pod("worker", 0, name="z", second=1, phase="Failed"),
        pod("worker", 0, name="b", second=2, phase="Failed"),
        pod("worker", 0, name="a", second=2, phase="Running"),
    ]
    seen = run_state([job("evaluator"), job("ps"), job("worker"), job("chief")], pods)
    folded = seen.status({})
    assert [role.role for role in folded.roles] == ["chief", "worker", "ps", "evaluator"]
    assert [each["metadata"]["name"] for each in seen.pods()] == ["z", "b", "a"]
    (task,) = folded.tasks
    assert (task.phase, task.restarts) == (Phase.RUNNING, 2)


def test_pods_that_are_gone_are_counted_where_the_job_says_so() -> None:
    latest = pod("worker", 0, phase="Running")
    latest["metadata"]["annotations"] = {
        "batch.kubernetes.io/job-index-failure-count": "1",
        "batch.kubernetes.io/job-index-ignored-failure-count": "2",
        "batch.kubernetes.io/other": "x",
    }
    folded = status([job("chief"), job("worker")], [latest])
    assert (folded.tasks[0].restarts, folded.roles[1].restarts) == (3, 3)


def test_a_role_says_what_most_of_its_tasks_wait_for() -> None:
    full: Object = {
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3"}
        ]
    }
    pods = [pod("worker", 0, **full), pod("worker", 1, **full), pod("worker", 2, phase="Running")]
    folded = status([job("chief"), job("worker", 3, active=3)], pods)
    assert folded.roles[1].message == "2 of 3 tasks: 0/3"
    assert (folded.reason, folded.message) == ("Unschedulable", "2 of 3 tasks: 0/3")


def test_what_the_run_s_own_pods_ask_for_is_told_where_they_do_not_fit() -> None:
    full = "0/1 nodes are available: 1 Insufficient cpu."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": full}
    chief, worker, server = job("chief"), job("worker", 2, active=2), job("ps")
    for each, cpu in ((chief, "500m"), (worker, "1")):
        container = {"name": "tensorflow", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
        each["spec"]["template"]["spec"]["containers"] = [container]
    chief["metadata"]["annotations"]["tf-launcher.dev/spec"] = '{"spec": {"tensorboard": {}}}'
    pods = [pod("worker", 0, phase="Running"), pod("worker", 1, conditions=[condition])]
    message = status([chief, worker, server], pods).roles[1].message
    assert message.startswith("1 of 2 tasks: 0/1 nodes are available: 1 Insufficient cpu; ask for less cpu")
    assert message.endswith("; this run asks for chief 500m, worker 2 x 1, and its TensorBoard")


def warning(about: str, message: str, second: int) -> Object:
    return {
        "metadata": {"uid": "event"},
        "involvedObject": {"uid": about},
        "reason": "FailedCreate",
        "message": message,
        "lastTimestamp": f"2026-01-01T00:00:{second:02d}Z",
    }


def test_a_warning_about_a_job_counts_until_its_next_pod() -> None:
    jobs = [job("chief"), job("worker", 2, active=1)]
    quota = warning("worker", "Error creating: exceeded quota", 5)
    assert status(jobs, [pod("worker", 0, second=4)], quota).roles[1].message == "exceeded quota"
    assert status(jobs, [pod("worker", 0, second=6)], quota).roles[1].message == ""
    assert status([jobs[0], job("worker", 2, active=2)], [], quota).roles[1].message == ""


def test_a_warning_about_a_pod_fills_a_silence() -> None:
    waiting = pod("chief", 0, **state(waiting={"reason": "ContainerCreating"}))
    folded = status([job("chief")], [waiting], warning("chief-0", "volume", 5))
    assert folded.tasks[0].message == "volume"


def test_a_run_whose_namespace_is_being_deleted_is_lost() -> None:
    dead = [pod("worker", 0, phase="Failed"), pod("worker", 1, phase="Failed")]
    seen = run_state([job("chief"), job("worker", 2)], dead)
    assert seen.stands_still
    assert not run_state([job("chief"), job("worker", 2)], [*dead, pod("chief", 0)]).stands_still
    leaving = pod("chief", 0, phase="Running")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:09Z"
    assert run_state([job("chief"), job("worker", 2)], [*dead, leaving]).stands_still
    assert not seen.status({}).ended
    seen.dying_namespace = "default"
    folded = seen.status({})
    assert (folded.phase, folded.ended) == (Phase.LOST, True)
    assert folded.message == "namespace default is being deleted, and the run with it"
    assert {role.phase for role in folded.roles} == {Phase.LOST}
    over = run_state([job("chief", conditions=[{"type": "Complete", "status": "True"}])], [])
    assert not over.stands_still


def test_what_kubelet_writes_into_the_status_itself_is_told_once() -> None:
    waiting = pod("chief", 0, **state(waiting={"reason": "ContainerCreating"}))
    failed = {**warning("chief-0", "Error: ErrImagePull", 8), "reason": "Failed"}
    assert status([job("chief")], [waiting], failed).tasks[0].message == ""


def test_a_storage_class_that_is_not_there_is_named() -> None:
    full = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
    waits = pod(
        "chief",
        0,
        conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": full}],
    )
    waits["spec"]["volumes"] = [{"name": "m", "persistentVolumeClaim": {"claimName": "mnist-model"}}]
    assert status([job("chief")], [waits]).message == full.removesuffix(". not found")
    missing = {
        **warning("", 'storageclass.storage.k8s.io "nope" not found', 5),
        "involvedObject": {"kind": "PersistentVolumeClaim", "name": "mnist-model", "uid": "claim"},
    }
    message = status([job("chief")], [waits], missing).message
    assert message.startswith('claim mnist-model: storageclass.storage.k8s.io "nope" not found; mend ')


def test_another_run_of_the_same_name_is_another_run() -> None:
    other = job("worker")
    other["metadata"] |= {"uid": "other", "ownerReferences": [{"uid": "earlier chief"}]}
    stray = pod("worker", 0)
    stray["metadata"]["ownerReferences"] = [{"uid": "other"}]
    folded = status([job("chief"), other], [stray])
    assert [role.role for role in folded.roles] == ["chief"]
    assert folded.tasks == ()


def test_what_was_applied_by_hand_has_no_owner() -> None:
    worker, later = job("worker"), job("chief")
    worker["metadata"]["ownerReferences"] = []
    later["metadata"]["uid"] = "another run's"
    folded = status([job("chief"), later, worker], [])
    assert [role.role for role in folded.roles] == ["chief", "worker"]


def test_the_end_and_the_deletion_may_come_together() -> None:
    done: Object = {"conditions": [{"type": "Complete", "status": "True"}]}
    seen = run_state([job("chief"), job("worker")], [])
    seen.drop("Job", slim_job(job("chief", **done)))
    seen.drop("Job", slim_job(job("worker")))
    assert seen.deleted
    assert seen.status({}).phase is Phase.SUCCEEDED
    assert len(seen.status({}).roles) == 2


def test_a_pod_that_is_gone_leaves_its_task_as_it_was() -> None:
    """Otherwise the pod before it would seem to have failed just now."""
    pods = [pod("worker", 0, name="a", second=1, phase="Failed"), pod("worker", 0, name="b", second=2)]
    seen = run_state([job("chief"), job("worker")], pods)
    deleted = pod("worker", 0, name="b", second=2)
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:03Z"
    seen.drop("Pod", slim_pod(deleted))
    (task,) = seen.status({}).tasks
    assert (task.phase, task.deleted, task.restarts) == (Phase.FAILED, True, 1)
    seen.put("Pod", slim_pod(pod("worker", 0, name="c", second=4, phase="Running")))
    (task,) = seen.status({}).tasks
    assert (task.phase, task.deleted, task.restarts) == (Phase.RUNNING, False, 1)
    assert task.attempt == 2, "the pod that is gone keeps its number"
    seen.replace("Pod", [slim_pod(pod("worker", 0, name="d", second=5, phase="Running"))])
    assert seen.status({}).tasks[0].attempt == 3, "those that a list does not have any more, too"


def test_a_list_without_the_primary_tells_that_it_is_gone() -> None:
    seen = run_state([job("chief")], [])
    seen.replace("Job", [])
    assert (seen.deleted, seen.primary is not None) == (True, True)


def test_a_run_that_was_stopped_says_so() -> None:
    late: Object = {
        "conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "late"}]
    }
    stopped = job("chief", **late)
    assert status([stopped], []).message == "late"
    stopped["metadata"]["annotations"]["tf-launcher.dev/stopped"] = "Stopped: it was: interrupted"
    folded = status([stopped], [])
    assert (folded.reason, folded.message) == ("Stopped", "it was: interrupted")


def test_suspended_beside_an_ended_primary_is_an_end() -> None:
    done: Object = {"conditions": [{"type": "Complete", "status": "True"}]}
    idle = job("worker", conditions=[{"type": "Suspended", "status": "True"}])
    assert status([job("chief", **done), idle], []).ended
    assert not status([job("chief"), idle], []).ended


def test_differences() -> None:
    before = {"a": {"b": 1}, "env": [{"name": "x", "value": 1}, {"name": "y"}], "l": [1, 2], "gone": True}
    after = {"a": {"b": 2}, "env": [{"name": "y"}, {"name": "x", "value": 2}], "l": [1], "new": {"c": "text"}}
    assert list(differences(before, after)) == [
        "a.b: 1 -> 2",
        "env[x].value: 1 -> 2",
        "l[1]: 2 -> nothing",
        "gone: true -> nothing",
        'new.c: nothing -> "text"',
    ]
    assert list(differences(before, before)) == []


def test_what_the_server_alters() -> None:
    sent = {
        "resources": {"limits": {"cpu": "0.5", "memory": "1024Mi", "nvidia.com/gpu": 1}},
        "suspend": False,
        "env": [{"name": "a", "value": ""}],
        "image": "x",
    }
    kept = {
        "resources": {"limits": {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "1"}},
        "env": [{"name": "a"}, {"name": "injected", "value": "1"}],
        "image": "mirror/x",
        "added": 1,
    }
    assert list(altered(sent, kept)) == ['image: "x" -> "mirror/x"']
    assert list(wanted(kept, sent)) == ['image: "mirror/x" -> "x"']
    assert list(altered({"suspend": False}, {"suspend": True})) == ["suspend: false -> true"]
    assert list(altered({"resources": {"cpu": "1"}}, {"resources": {"cpu": "2"}})) == [
        'resources.cpu: "1" -> "2"'
    ]


def test_long_lists_and_values_are_shortened() -> None:
    lines = [f"line {number}" for number in range(12)]
    assert indented(lines).splitlines()[-1] == "  and 2 more"
    (line,) = differences({"a": "x" * 1000}, {"a": "y"})
    assert len(line) < 90


@pytest.mark.parametrize(
    ("status", "words", "expected"),
    [
        (403, 'pods "x" is forbidden: exceeded quota: q, requested: pods=1', "a quota forbids to patch"),
        (
            403,
            'jobs.batch "x" is forbidden: violates PodSecurity "restricted"',
            "the cluster refused to patch",
        ),
        (400, 'admission webhook "w" denied the request: no', "the cluster's admission control refused"),
        (422, "Invalid value: " + "x" * 10_000, "the cluster refused to patch"),
        (418, "teapot", "answered 418"),
    ],
)
def test_refusals_are_explained(status: int, words: str, expected: str) -> None:
    request = Request("patch", "jobs.batch", "default", "x")
    error = refusal(request, status, {"message": words}, "https://host", "the kubeconfig", None)
    assert expected in error.message
    assert len(error.message) < 700


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate is not yet valid",
            "not yet valid",
        ),
        ("<...> [Errno 111] Connection refused", "connection refused"),
        ("NameResolutionError: Failed to resolve 'nowhere'", "does not resolve"),
        ("Read timed out. (read timeout=60)", "does not answer: timed out"),
        ("_ssl.c:1000: The handshake operation timed out", "does not answer: timed out"),
        ("IncompleteRead(0 bytes read)", "broke: IncompleteRead"),
    ],
)
def test_silences_are_explained(text: str, expected: str) -> None:
    error = unreachable(OSError(text), "https://host", "the kubeconfig")
    assert expected in error.message
    assert "https://host" in error.message
    assert "the kubeconfig" in error.hint
    assert ("clock" in error.hint) is ("certificate" in text)


def test_kubernetes_is_imported_only_when_a_cluster_is_asked() -> None:
    code = (
        "import sys\n"
        "from launcher.backends.kubernetes.backend import KubernetesBackend\n"
        "KubernetesBackend()\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('kubernetes', 'jinja2', 'pydantic')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"


def test_a_warning_is_told_when_it_lasts() -> None:
    young = "2026-01-01T00:00:03Z"
    waits = pod("chief", 0, **state(waiting={"reason": "ContainerCreating"}))
    waits["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"

    def seen(time: str) -> str:
        event = {
            "metadata": {},
            "involvedObject": {"uid": waits["metadata"]["uid"]},
            "reason": "FailedMount",
            "message": "no volume",
            "lastTimestamp": time,
        }
        (task,) = status([job("chief")], [waits], event).tasks
        return task.reason

    assert seen(young) == ""
    assert seen("2026-01-01T00:00:09Z") == "FailedMount"
